"""Who may look at whom.

Training reads one row that holds clean tokens and, behind them, noisy blocks. Every token carries four integers
(:class:`Layout`), and one predicate on them, :func:`may_attend`, is the whole of the paper's Figure 9:

===================  =========================================================================
clean sees clean     causally: ``position[k] <= position[q]``
noisy sees noisy     both ways inside its own block: ``block_start[k] == block_start[q]``
noisy sees clean     what stands before its block: ``position[k] < block_start[q]``
clean sees noisy     never
===================  =========================================================================

all within one document. The predicate becomes a dense boolean mask for SDPA (:func:`dense_mask`) or a ``BlockMask`` for
FlexAttention (:func:`block_mask`).

Shapes: B batch, S tokens of a row (clean + noisy), L clean tokens of a row.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sbd.errors import UserError

CLEAN = -1
"""``block_start`` of a clean token."""
PADDING = -1
"""``document`` of a padding token. Padding attends to padding only, so that no row of the softmax is empty."""


class Layout(NamedTuple):
    """What a token is, for every token of a row; integer tensors ``[B, S]``.

    document: index of the document within the row, or PADDING.
    position: place in the document, from 0; a noisy token repeats the position of the token it stands for.
    block_start: position of the first token of its block for a noisy token, CLEAN for a clean one. Blocks of one
        document never share a start, so it also names the block.
    """

    document: Tensor
    position: Tensor
    block_start: Tensor


def may_attend(
    document_q: Tensor, document_k: Tensor, position_q: Tensor, position_k: Tensor, start_q: Tensor, start_k: Tensor
) -> Tensor:
    """The three permitted regions of Figure 9 (paper p. 16), per document; arguments broadcast, result is boolean."""
    query_clean, key_clean = start_q == CLEAN, start_k == CLEAN
    clean_to_clean = query_clean & key_clean & (position_k <= position_q)
    noisy_to_clean = ~query_clean & key_clean & (position_k < start_q)
    noisy_to_noisy = ~query_clean & (start_k == start_q)
    return (document_q == document_k) & (clean_to_clean | noisy_to_clean | noisy_to_noisy)


def dense_mask(layout: Layout) -> Tensor:
    """Boolean mask ``[B, 1, S, S]``, True where the query (third axis) may attend to the key (fourth axis)."""
    pairs = [(values[:, None, :, None], values[:, None, None, :]) for values in layout]
    (document_q, document_k), (position_q, position_k), (start_q, start_k) = pairs
    return may_attend(document_q, document_k, position_q, position_k, start_q, start_k)


def block_mask(layout: Layout) -> Any:
    """The same mask as a FlexAttention ``BlockMask`` ``[B, None, S, S]``.

    The predicate reads tensors, never Python numbers: another block size or packing is other data, not other code, and
    recompiles nothing. On a GPU the builder itself is compiled, otherwise it would hold the dense mask in memory.
    """
    document, position, start = (values.contiguous() for values in layout)
    batch, length = document.shape

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return may_attend(document[b, q], document[b, k], position[b, q], position[b, k], start[b, q], start[b, k])

    return _block_mask_builder(document.device.type)(
        mask_mod, B=batch, H=None, Q_LEN=length, KV_LEN=length, device=document.device
    )


@cache
def _block_mask_builder(device_type: str) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return torch.compile(create_block_mask, dynamic=True) if device_type == "cuda" else create_block_mask


def doubled_layout(length: int, block_size: int, document_ids: Tensor | None = None) -> Layout:
    """Layout ``[1, 2 * length]`` of the paper's Figure 8: the clean sequence, then a noisy copy of all of it.

    The block grid starts at the first token of each document. ``document_ids`` ``[length]`` are equal within a document
    and differ between neighbours; None is a single document.
    """
    if block_size < 1:
        raise UserError(f"block size is {block_size}; it must be at least 1")
    if document_ids is None:
        document_ids = torch.zeros(length, dtype=torch.long)
    if document_ids.shape != (length,):
        raise UserError(f"document_ids has shape {tuple(document_ids.shape)}; it must be ({length},), one id per token")
    index = torch.arange(length, device=document_ids.device)
    first = torch.ones_like(document_ids, dtype=torch.bool)
    first[1:] = document_ids[1:] != document_ids[:-1]
    position = index - torch.where(first, index, 0).cummax(0).values
    document = first.long().cumsum(0) - 1
    start = position // block_size * block_size
    return Layout(
        document=torch.cat([document, document])[None],
        position=torch.cat([position, position])[None],
        block_start=torch.cat([torch.full_like(start, CLEAN), start])[None],
    )


def training_mask(length: int, block_size: int, document_ids: Tensor | None = None) -> Tensor:
    """The training mask of Figure 9: boolean ``[2 * length, 2 * length]``, True = query row may see key column.

    See :func:`doubled_layout` for the arguments.
    """
    return dense_mask(doubled_layout(length, block_size, document_ids))[0, 0]
