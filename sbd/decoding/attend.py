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
_COPY_UP_TO = 96 * 1024
"""Bytes of a row's keys in view up to which copies of them for groups take a CPU less than a call for each row."""


@dataclass(frozen=True)
class Heads:
    """Heads of the queries, and those of keys and values, each ``width`` numbers."""

    queries: int
    keys: int
    width: int


def attention(heads: Heads, mask: Tensor | None, causal: int, count: int, like: Tensor) -> Attend:
    """How the queries of a pass attend, ``count`` of each row, for tensors of the type and on the device of ``like``.

    causal: how many of them, the first ones, are a prompt from slot 0 on and attend token-causally. The others attend
    by ``mask``, additive, [batch, 1, query or 1, view]; to the whole view if it is None.

    On a GPU no fused kernel takes both a mask and grouped heads, so there the heads of a group become further queries
    of their key-value head; repeating the cache instead would copy all of it in every layer. On a CPU that is faster
    in 16 bits while queries are few.
    """
    if 0 < causal < count:
        prompt = attention(heads, None, causal, causal, like)
        behind = attention(heads, mask, 0, count - causal, like)

        def apart(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            first = prompt(queries[:, :causal], keys[:, :causal], values[:, :causal])
            return torch.cat((first, behind(queries[:, causal:], keys, values)), 1)

        return apart

    group = heads.queries // heads.keys
    few = like.element_size() == 2 and count <= _FOLD_UP_TO and (count == 1 or not causal)
    if group == 1 or not (mask is not None if like.is_cuda else few):

        def plain(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(
                queries.transpose(1, 2),
                keys.transpose(1, 2),
                values.transpose(1, 2),
                attn_mask=mask,
                is_causal=causal > 0,
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
    """Rows of different width, their queries in one line, row after row, so that linear layers do nothing in vain.

    They attend in groups of equal size, one or several of a row, each over keys and values of its row: where some rows
    commit a block and refine the next one and the others only refine, in groups of a block. Where keys in view are
    many, they attend row by row instead, and each query is a group.
    """

    def __init__(self, widths: list[int], heads: Heads, view: int, dtype: torch.dtype):
        """widths: queries of each row; at least one is not 0. ``view``: slots looked at, of the type ``dtype``."""
        # Rows are few, so this is plain Python, as in `sbd.decoding.rows`.
        self.heads, self.widths = heads, widths
        self.is_row_by_row = view * heads.keys * heads.width * dtype.itemsize > _COPY_UP_TO
        self.size = 1 if self.is_row_by_row else _size_of_groups(widths)
        of_rows = [-(-width // self.size) for width in widths]
        self.groups = sum(of_rows)
        self._rows: Tensor | None = None
        """Of each group; None if every row is one."""
        if any(count != 1 for count in of_rows):
            self._rows = torch.from_numpy(np.repeat(np.arange(len(widths)), of_rows))
        self._places: Tensor | None = None
        """Of the line, among all places of the groups; None if the line fills them."""
        if sum(widths) < self.groups * self.size:
            places, first = [], 0
            for width, count in zip(widths, of_rows, strict=True):
                places += range(first, first + width)
                first += count * self.size
            self._places = torch.from_numpy(np.array(places))

    def grouped(self, line: Tensor) -> Tensor:
        """Values of the line [queries, ...] as [groups, size, ...], 0 where nothing fills a place."""
        if self._places is not None:
            line = line.new_zeros(self.groups * self.size, *line.shape[1:]).index_copy_(0, self._places, line)
        return line.view(self.groups, self.size, *line.shape[1:])

    def attention(self, mask: Tensor) -> Attend:
        """How they attend: queries [1, queries, heads, head_dim] of the line, keys and values of all rows.

        mask: additive, [groups, 1, size, view].
        """
        if self.is_row_by_row:
            return self._row_by_row(mask)
        attend = attention(self.heads, mask, 0, self.size, mask)

        def in_groups(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            out = attend(self.grouped(queries[0]), self._of_rows(keys), self._of_rows(values)).flatten(0, 1)
            return (out if self._places is None else out.index_select(0, self._places))[None]

        return in_groups

    def _row_by_row(self, mask: Tensor) -> Attend:
        masks = mask.transpose(0, 2).split(self.widths, 2)
        rows = [attention(self.heads, of_row, 0, of_row.shape[2], mask) for of_row in masks]

        def in_turn(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            parts = zip(rows, queries.split(self.widths, 1), keys.split(1), values.split(1), strict=True)
            return torch.cat([attend(*part) for attend, *part in parts if part[0].numel()], 1)

        return in_turn

    def _of_rows(self, values: Tensor) -> Tensor:
        """For each group those of its row, of [batch, ...]."""
        return values if self._rows is None else values.index_select(0, self._rows)


def _size_of_groups(widths: list[int]) -> int:
    """Which of the ``widths`` of rows takes least as the size of groups, each costing as much as two more queries."""
    return min(
        set(widths) - {0},
        key=lambda size: (sum(-(-width // size) for width in widths) * (size + _COST_OF_A_GROUP), size),
    )
