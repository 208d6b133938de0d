"""Lay documents out as rows of clean tokens and noisy blocks, with the labels of each.

A row is ``[clean documents | noisy blocks]``. Noisy blocks stand only where something is predicted: the grid starts at
the first token of a document that carries loss (the first token of the solution, or of the document when prompts carry
loss too), which is where decoding starts it, and a block without a masked slot is left out.
The last block of a document is completed with end-of-text tokens, since decoding always works on whole blocks; they are
masked and predicted like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbd import corruption
from sbd.attention import CLEAN, PADDING, Layout

IGNORE = -100


class Document(NamedTuple):
    """Token ids of a document, how many of them are prompt, and the number of the document in the prepared data."""

    tokens: np.ndarray
    prompt_length: int
    sample: int


@dataclass(frozen=True)
class Noise:
    """How noisy blocks are made: those of SBD, those of SDLM, or none ("ntp").

    block_size: lowest and highest block size; one is drawn per step. mask_rate: see :mod:`sbd.corruption`.
    prompt_loss: whether prompts are predicted too. sdlm_repeats: SDLM block tokens per solution token.
    """

    kind: Literal["ntp", "sbd", "sdlm"] = "sbd"
    block_size: tuple[int, int] = (2, 16)
    mask_rate: corruption.MaskRate = "sequence"
    prompt_loss: bool = False
    sdlm_repeats: float = 1.0
    seed: int = 0


class Blocks(NamedTuple):
    """Noisy blocks of one document, each array ``[blocks, block_size]``; start is what the mask compares with."""

    tokens: np.ndarray
    position: np.ndarray
    start: np.ndarray
    labels: np.ndarray


class Batch(NamedTuple):
    """A micro-batch. ``[B, S]`` each, or a :class:`~sbd.attention.Layout` of such.

    ntp_labels: the next token where a clean token predicts one that carries loss, else IGNORE (shifted).
    block_labels: what a noisy slot predicts, else IGNORE (SBD: its own token, masked slots only; SDLM: the next token).
    """

    input_ids: Tensor
    layout: Layout
    ntp_labels: Tensor
    block_labels: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """The batch on another device."""
        layout = Layout(*(values.to(device) for values in self.layout))
        return Batch(self.input_ids.to(device), layout, self.ntp_labels.to(device), self.block_labels.to(device))


def set_blocks(document: Document, block_size: int, step: int, noise: Noise, mask_id: int, eos_id: int) -> Blocks:
    """SBD's noisy blocks of a document (paper Fig. 8): labels are the slot's own token, on masked slots only."""
    first = 0 if noise.prompt_loss else document.prompt_length
    target = document.tokens[first:]
    count = -(-len(target) // block_size)
    clean = np.full(count * block_size, eos_id, dtype=np.int64)
    clean[: len(target)] = target
    clean = clean.reshape(count, block_size)
    masked = corruption.mask_positions(noise.seed, step, document.sample, count, block_size, noise.mask_rate)
    position = first + np.arange(count * block_size).reshape(count, block_size)
    blocks = Blocks(
        tokens=np.where(masked, mask_id, clean),
        position=position,
        start=np.broadcast_to(position[:, :1], position.shape),
        labels=np.where(masked, clean, IGNORE),
    )
    return Blocks(*(values[masked.any(axis=1)] for values in blocks))


def shifted_blocks(document: Document, block_size: int, step: int, noise: Noise, mask_id: int, eos_id: int) -> Blocks:
    """SDLM's blocks (arXiv 2509.24007 eq. 3): last known token and masks, at random anchors; slot j predicts j + 1."""
    first = max(1, 0 if noise.prompt_loss else document.prompt_length)
    length = len(document.tokens)
    wanted = max(1, round(noise.sdlm_repeats * (length - first) / block_size))
    anchors = corruption.anchor_positions(noise.seed, step, document.sample, first - 1, length - 1, wanted)
    position = anchors[:, None] + np.arange(block_size)
    tokens = np.full(position.shape, mask_id, dtype=np.int64)
    tokens[:, 0] = document.tokens[anchors]
    # SDLM drops the labels after the end of the text.
    labels = np.where(position + 1 < length, document.tokens[np.minimum(position + 1, length - 1)], IGNORE)
    return Blocks(tokens, position, np.broadcast_to(position[:, :1], position.shape), labels)


def make_batch(
    rows: Sequence[Sequence[Document]],
    step: int,
    noise: Noise,
    *,
    mask_id: int,
    pad_id: int,
    eos_id: int,
    multiple: int = 1,
) -> Batch:
    """Lay out packed rows of documents; clean parts and noisy parts are each padded to the longest of the batch.

    The longest is rounded up to a multiple of ``multiple``, so that compiled code sees few lengths.
    """
    block_size = corruption.block_size_at(noise.seed, step, *noise.block_size)
    make_blocks = {"sbd": set_blocks, "sdlm": shifted_blocks}.get(noise.kind)
    clean_rows, noisy_rows = [], []
    for row in rows:
        clean, noisy = [], []
        for index, document in enumerate(row):
            length = len(document.tokens)
            labels = np.full(length, IGNORE, dtype=np.int64)
            first = max(1, 0 if noise.prompt_loss else document.prompt_length)
            labels[first - 1 : -1] = document.tokens[first:]
            position = np.arange(length)
            clean.append(_columns(document.tokens, index, position, CLEAN, labels, IGNORE))
            if make_blocks is not None:
                blocks = make_blocks(document, block_size, step, noise, mask_id, eos_id)
                noisy.append(_columns(blocks.tokens, index, blocks.position, blocks.start, IGNORE, blocks.labels))
        clean_rows.append(np.concatenate(clean, axis=1))
        noisy_rows.append(np.concatenate(noisy, axis=1) if noisy else np.empty((6, 0), dtype=np.int64))
    padding = np.array([pad_id, PADDING, 0, CLEAN, IGNORE, IGNORE])[:, None]
    table = np.concatenate([_pad(clean_rows, padding, multiple), _pad(noisy_rows, padding, multiple)], axis=2)
    tokens, document, position, start, ntp_labels, block_labels = torch.from_numpy(table.transpose(1, 0, 2).copy())
    return Batch(tokens, Layout(document, position, start), ntp_labels, block_labels)


def _columns(*values: np.ndarray | int) -> np.ndarray:
    """Broadcast the six values of a run of tokens against each other: ``[6, tokens]``."""
    return np.stack([part.reshape(-1) for part in np.broadcast_arrays(*values)]).astype(np.int64)


def _pad(rows: list[np.ndarray], padding: np.ndarray, multiple: int) -> np.ndarray:
    longest = -(-max(row.shape[1] for row in rows) // multiple) * multiple
    filled = [np.concatenate([row, np.repeat(padding, longest - row.shape[1], axis=1)], axis=1) for row in rows]
    return np.stack(filled)
