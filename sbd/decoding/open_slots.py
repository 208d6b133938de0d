"""The slots of a pass that may be revealed, one below the other: where a pass costs what it computes, as on a CPU, the
LM head, the sampler and the choice of tokens are spared all others of the block.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from sbd.decoding.rows import to_device


class OpenSlots:
    """The slots of ``is_open`` [batch, k] that are True; ``row`` and ``place`` [open] are where they stand."""

    def __init__(self, is_open: np.ndarray):
        self.shape = is_open.shape
        self.row, self.place = is_open.nonzero()

    def states(self, hidden: Tensor, offset: np.ndarray | None) -> Tensor:
        """Their states [open, 1, hidden] of those of a pass [batch, query, hidden].

        offset: [batch, k] is the query of each slot; None where that is its place.
        """
        query = self.place if offset is None else self.take(offset)[:, 0]
        index = to_device(self.row * hidden.shape[1] + query, hidden.device)
        return hidden.flatten(0, 1).index_select(0, index)[:, None]

    def take(self, values: np.ndarray) -> np.ndarray:
        """Those of ``values`` [batch, k], [open, 1]."""
        return values[self.row, self.place][:, None]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """``values`` [open, 1] where they belong, [batch, k], and 0 elsewhere."""
        out = np.zeros(self.shape, values.dtype)
        out[self.row, self.place] = values[:, 0]
        return out
