"""Attention in a pass of `sbd.decoding.forward`: grouped heads, and rows of different width.

What is the same in every layer, how heads are laid out and the mask that goes with it, is settled once a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries [batch, query, heads, head_dim], keys and values [batch, view, kv_heads, head_dim] -> what the queries attend
to, laid out like them."""

_COST_OF_A_GROUP = 2
"""What a group of queries that attend together takes a CPU beside them, in queries."""
_FOLD_UP_TO = 16
"""Queries of a row up to which a CPU attends faster in 16 bits with the heads of a group folded into one."""


@dataclass(frozen=True)
class Heads:
    """Heads of the queries, and those of keys and values, each ``width`` numbers."""

    queries: int
    keys: int
    width: int


def attention(heads: Heads, mask: Tensor | None, causal: bool, count: int, like: Tensor) -> Attend:
    """How the queries of a pass attend, ``count`` of each row, for tensors of the type and on the device of ``like``.

    mask: additive, [batch, 1, query or 1, view]; None attends to the whole view (token-causally if ``causal``).

    On a GPU no fused kernel takes both a mask and grouped heads, so there the heads of a group become further queries
    of their key-value head; repeating the cache instead would copy all of it in every layer. On a CPU that is faster
    in 16 bits while queries are few.
    """
    group = heads.queries // heads.keys
    few = like.dtype != torch.float32 and count <= _FOLD_UP_TO and (count == 1 or not causal)
    if group == 1 or not (mask is not None if like.is_cuda else few):

        def plain(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(
                queries.transpose(1, 2),
                keys.transpose(1, 2),
                values.transpose(1, 2),
                attn_mask=mask,
                is_causal=causal,
                enable_gqa=group > 1,
            ).transpose(1, 2)

        return plain

    of_group = mask if mask is None or mask.shape[2] == 1 else mask.repeat(1, 1, group, 1)

    def folded(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        batch, split = len(queries), (heads.keys, group, heads.width)
        laid = queries.view(batch, count, *split).permute(0, 2, 3, 1, 4).reshape(batch, heads.keys, -1, heads.width)
        out = F.scaled_dot_product_attention(laid, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=of_group)
        return out.view(batch, heads.keys, group, count, heads.width).permute(0, 3, 1, 2, 4).reshape(queries.shape)

    return folded


class Ragged:
    """The needed queries of a pass in one line, so that the others cost nothing in linear layers.

    They attend in groups of equal size, one or several of a row, each over keys and values of its row: where some rows
    commit a block and refine the next one and the others only refine, in groups of a block. ``index``: where the needed
    queries stand among all of the pass, row after row.
    """

    def __init__(self, needed: np.ndarray, widths: list[int], heads: Heads):
        """needed: [batch, query], True for at least one; widths: how many of each row."""
        # What is counted here are rows, a few: plain Python, as in `sbd.decoding.rows`.
        self.heads, self.size = heads, _size_of_groups(widths)
        groups = [-(-width // self.size) for width in widths]
        self.groups = sum(groups)
        index = np.flatnonzero(needed)
        self.index = self._queries = torch.from_numpy(index)
        self._rows: Tensor | None = None
        """Of each group; None if every row is one."""
        if any(count != 1 for count in groups):
            self._rows = torch.tensor([row for row, count in enumerate(groups) for _ in range(count)])
        self._places: Tensor | None = None
        """Of the line, among all places of the groups; None if the line fills them."""
        if len(index) < self.groups * self.size:
            places, first = [], 0
            for width, count in zip(widths, groups, strict=True):
                places += range(first, first + width)
                first += count * self.size
            queries = np.zeros(first, dtype=int)  # a place that is not filled may see anything
            queries[places] = index
            self._places, self._queries = torch.tensor(places), torch.from_numpy(queries)

    def grouped(self, values: Tensor) -> Tensor:
        """Values of all queries [batch, query], or one of each row [batch, 1], laid out as [groups, size] or [., 1]."""
        if values.shape[1] == 1:
            return self._of_rows(values)
        return values.flatten().index_select(0, self._queries).view(self.groups, self.size)

    def attention(self, mask: Tensor) -> Attend:
        """How they attend: queries [1, needed, heads, head_dim] of the line, keys and values of all rows.

        mask: additive, [groups, 1, size or 1, view].
        """
        heads, places = self.heads, self._places
        attend = attention(heads, mask, False, self.size, mask)
        spread = None if places is None else mask.new_zeros(self.groups * self.size, heads.queries, heads.width)

        def in_groups(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            line = queries[0] if spread is None or places is None else spread.index_copy_(0, places, queries[0])
            grouped = line.view(self.groups, self.size, heads.queries, heads.width)
            out = attend(grouped, self._of_rows(keys), self._of_rows(values)).flatten(0, 1)
            return (out if places is None else out.index_select(0, places))[None]

        return in_groups

    def _of_rows(self, values: Tensor) -> Tensor:
        """For each group those of its row, of [batch, ...]."""
        return values if self._rows is None else values.index_select(0, self._rows)


def _size_of_groups(widths: list[int]) -> int:
    """Which of the ``widths`` of rows takes least as the size of groups, each costing as much as two more queries."""
    return min(
        set(widths) - {0},
        key=lambda size: (sum(-(-width // size) for width in widths) * (size + _COST_OF_A_GROUP), size),
    )
