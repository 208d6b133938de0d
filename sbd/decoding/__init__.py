"""Generation with a next-token and masked-token model: one forward function, four decoders.

``generate`` checks the request and hands it to the decoder; ``settings`` are the decoders' knobs, ``engine`` runs one pass of
the model, ``rows`` holds the text of every row and when it ends, ``randomness`` chooses tokens.
"""

from sbd.decoding.generate import generate
from sbd.decoding.rows import Generation
from sbd.decoding.settings import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock

__all__ = ["Autoregressive", "Decoder", "Generation", "LongestPrefix", "SelfSpeculative", "SetBlock", "generate"]
