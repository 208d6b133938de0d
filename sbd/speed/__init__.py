"""Wall-clock of decoders, measured side by side: what passes cost, what they gain, and what equation 16 says they
should.

``measurement`` lets everything take turns, ``contenders`` runs our decoders and the baselines of Hugging Face,
``passes`` single passes of fixed widths, ``stopwatch`` tells the time, ``table`` makes rows of it all, with the gains
that ``sbd.equation_16`` predicts.
"""

from sbd.speed.measurement import measure
from sbd.speed.stopwatch import Stopwatch
from sbd.speed.table import write_csv

__all__ = ["Stopwatch", "measure", "write_csv"]
