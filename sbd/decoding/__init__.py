"""Generation with a next-token and masked-token model: one forward function, four decoders.

``generation`` is the front door, ``request`` the checks, ``settings`` the decoders' knobs; ``engine`` runs one pass of
the model, ``rows`` holds the text of every row and when it ends, ``randomness`` chooses tokens. One file for each
decoder.
"""

from sbd.decoding.generation import generate
from sbd.decoding.rows import Generation
from sbd.decoding.settings import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock

__all__ = ["Autoregressive", "Decoder", "Generation", "LongestPrefix", "SelfSpeculative", "SetBlock", "generate"]
