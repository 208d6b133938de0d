"""Set Block Decoding: algorithm 3 of the paper, every row at its own pace.

Slot = position, so the finished previous block and the new masks lie side by side behind a row's committed length:

    | committed: length slots | finished block (causal) | block: k masks or revealed tokens (bidirectional) | junk |
                              ^ length                  ^ block                                            ^ block +
                              size

A row that refines has no finished block to commit and its block starts at its length. All rows of a pass are as wide as
the widest: 2k while some row commits, k otherwise; what lies behind a shorter row is junk that nobody attends to.

The paper does not say what happens behind an end token within a block, or behind the last token that is asked for. Here
such a slot stays a mask, the former once the end token is revealed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import random_integers
from sbd.decoding.rows import Rows, to_device, to_host
from sbd.decoding.settings import SetBlock
from sbd.errors import UserError
from sbd.samplers import entropies


def decode(engine: Engine, rows: Rows, settings: SetBlock) -> None:
    """Until every row is done: one pass, one choice of what to reveal, a new block for rows that finished one."""
    low, high = settings.sizes
    mask_token, device = rows.request.mask_token, engine.device
    fused, one_size = settings.commit == "fused", low == high
    column = np.arange(2 * high)
    block_column = column[:high]

    length = block = rows.start  # where the committed tokens end, and where the block starts
    number = np.zeros_like(length)
    end = block + _sizes(rows, settings, number)
    committing = np.zeros_like(rows.running)
    prompts = prefill(engine, rows)
    ahead = _Ahead(engine, rows, prompts, fused) if settings.first_token == "next_token" else None
    commit, view = 0, max(rows.request.lengths) + high
    rows.start_blocks(block)

    while True:
        slots = length + column[: high + engine.width(commit, high) if fused else high]
        tokens = rows.at(slots)
        needed = limit = None
        if rows.batch > 1 or commit or not one_size:  # else one whole block: nothing is hidden, all is needed
            limit = to_device(np.where(slots < block, slots + 1, end) if commit else end, device)
            needed = (slots < end) & rows.running
        hidden = engine.forward(
            to_device(tokens, device),
            to_device(slots, device),
            "all" if limit is None else limit,
            view,
            needed=needed,
        )
        rows.pass_number += 1

        if fused and commit:
            offset, positions = block - length + block_column, block + block_column
            logits, filled = engine.logits(hidden, to_device(offset, device)), rows.at(positions)
        else:  # every block starts at the first query, or, in a pass that only commits, is not looked at
            logits, positions, filled = engine.logits(hidden[:, :high]), slots[:, :high], tokens[:, :high]
        decided = None if ahead is None else ahead.decide(logits, hidden, block - length, committing, commit)

        masked = (filled == mask_token) & rows.running
        if not one_size:
            masked &= positions < end
        if not fused:
            masked &= ~committing
        # What stands behind the end of the text is no part of it: no pass is spent on it.
        open_slots = masked & (positions < rows.end)
        sampled = settings.sampler(logits, to_device(open_slots, device))
        chosen = rows.choose(logits, positions)
        recorded = None if rows.entropy is None else entropies(logits)
        del logits  # the next pass makes as many
        reveal = to_host(sampled) & open_slots
        progress = reveal.any(1)
        if not progress.all() and (open_slots.any(1) > progress).any():
            raise UserError(
                f"the sampler {settings.sampler!r} revealed nothing in a block that has masks; it would never end"
            )
        if decided is not None:
            reveal[:, :1] |= masked[:, :1] & decided
        rows.reveal(positions, to_host(chosen), reveal, recorded)

        behind = np.where(masked & ~reveal, positions, end).min(1, keepdims=True)
        if not fused:
            behind = np.where(committing, block, behind)
        rows.advance(behind)
        if not rows.running.any():
            return

        length = block
        committing = (behind == end) & rows.running
        commit = 0
        if committing.any():
            number = number + committing
            block = np.where(committing, end, block)
            end = np.where(committing, block + _sizes(rows, settings, number), end)
            commit = int((block - length).max())
            rows.start_blocks(block)
        view = int(end[rows.running].max())


def _sizes(rows: Rows, settings: SetBlock, number: np.ndarray) -> np.ndarray | int:
    """Sizes [batch, 1] of the blocks ``number`` [batch, 1] of the rows; one for all where there is no range."""
    low, high = settings.sizes
    if low == high:
        return high
    seed, device = rows.request.sampling.seed, rows.samples.device
    return to_host(random_integers(seed, rows.samples, to_device(number[:, 0], device), low, high))[:, None]


class _Ahead:
    """The next-token prediction of the last committed token, which decides the first slot of the block behind it.

    It comes with the pass that commits. A fused one refines the next block as well and decides at once; a separate one
    looks at no block, and the pass behind it decides.
    """

    def __init__(self, engine: Engine, rows: Rows, hidden: Tensor, fused: bool):
        self.engine, self.fused = engine, fused
        self.fresh: np.ndarray | None = np.ones_like(rows.running)
        self.logits = engine.logits(hidden, to_device(rows.start - 1, engine.device))

    def decide(
        self, logits: Tensor, hidden: Tensor, committed: np.ndarray, committing: np.ndarray, commit: int
    ) -> np.ndarray | None:
        """Put the prediction into the first slot of ``logits`` [batch, k, vocab], in the rows that are returned.

        hidden: the states of this pass, which commits ``committed`` [batch, 1] tokens of the rows ``committing``
        [batch, 1], at most ``commit`` of a row. Returns [batch, 1], or None if no row is decided.
        """
        decided, found = self.fresh, self.logits
        self.fresh = None
        if commit:
            last = self.engine.logits(hidden, to_device(np.maximum(committed - 1, 0), hidden.device))
            if self.fused:
                decided, found = committing, last
            else:
                self.fresh, self.logits = committing, last
        if decided is not None:
            logits[:, :1] = torch.where(to_device(decided, logits.device)[..., None], found, logits[:, :1])
        return decided
