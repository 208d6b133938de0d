"""Set Block Decoding: algorithm 3 of the paper, every row at its own pace.

Slot = position, so the finished previous block and the new masks lie side by side behind a row's committed length:

    | committed: length slots | finished block (causal) | block: k masks or revealed tokens (bidirectional) | junk |
                              ^ length                  ^ block                                            ^ block +
                              size

A row that refines has no finished block to commit and its block starts at its length. All rows of a pass are as wide as
the widest: 2k while some row commits, k otherwise; what lies behind a shorter row is junk that nobody attends to.

The paper does not say what happens behind an end token within a block. Here such a slot stays a mask once the end token
is revealed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import random_integers
from sbd.decoding.rows import Rows
from sbd.decoding.settings import SetBlock
from sbd.errors import UserError
from sbd.samplers import entropies


def decode(engine: Engine, rows: Rows, settings: SetBlock) -> None:
    """Until every row is done: one pass, one choice of what to reveal, a new block for rows that finished one."""
    low, high = settings.sizes
    mask_token, seed = rows.request.mask_token, rows.request.sampling.seed
    fused = settings.commit == "fused"
    next_token = settings.first_token == "next_token"
    column = torch.arange(high, device=rows.start.device)
    width = torch.arange(2 * high, device=rows.start.device)

    length, block = rows.start.clone(), rows.start.clone()
    blocks = torch.zeros_like(length)
    size = random_integers(seed, rows.samples, blocks, low, high)
    hidden = prefill(engine, rows)
    # The next-token prediction for the first slot of each row's block, and whether it is fresh.
    ahead: Tensor | None = engine.logits(hidden, (length - 1)[:, None]) if next_token else None
    fresh = torch.ones_like(rows.done)
    commit, view = 0, max(rows.request.lengths) + high

    while True:
        rows.is_block_start.scatter_(1, block[:, None], True)
        slots = length[:, None] + width[: high + engine.width(commit, high) if fused else high]
        limit = (block + size)[:, None]
        if commit:
            limit = torch.where(slots < block[:, None], slots + 1, limit)
        alone = rows.batch == 1 and commit == 0 and low == high  # one whole block: nothing is hidden
        needed = (slots < (block + size)[:, None]) & ~rows.done[:, None]
        tokens = rows.sequence.gather(1, slots)
        hidden = engine.forward(tokens, slots, "all" if alone else limit, view, needed=needed)
        rows.pass_number += 1

        committing = block > length
        offset = (block - length) if fused else torch.zeros_like(block)
        logits = engine.logits(hidden, offset[:, None] + column)
        if ahead is not None:
            if commit:
                last = engine.logits(hidden, (block - length - 1).clamp(min=0)[:, None])
                ahead = torch.where(committing[:, None, None], last, ahead)
                fresh = fresh | committing
            logits[:, :1] = torch.where(fresh[:, None, None], ahead, logits[:, :1])

        positions = block[:, None] + column
        filled = rows.sequence.gather(1, positions)
        masked = (filled == mask_token) & (column < size[:, None]) & ~rows.done[:, None]
        if not fused:
            masked &= ~committing[:, None]
        # What stands behind a revealed end token is no part of the text: no pass is spent on it.
        open_slots = masked & ~rows.behind_end(filled)
        reveal = settings.sampler(logits, open_slots) & open_slots
        stuck = (open_slots.any(1) & ~reveal.any(1)).any()
        if ahead is not None:
            decide = fresh if fused else fresh & ~committing
            reveal[:, 0] |= masked[:, 0] & decide
            fresh = fresh & ~decide
        recorded = None if rows.entropy is None else entropies(logits)
        rows.reveal(positions, rows.choose(logits, positions), reveal, recorded)

        left = masked & ~reveal
        if not fused:
            left |= (committing & ~rows.done)[:, None] & (column < size[:, None])
        behind = torch.where(left, positions, (block + size)[:, None]).amin(1)
        length = block
        finished = ~left.any(1) & ~rows.done
        rows.advance(behind, width=high)

        blocks = blocks + finished
        block = torch.where(finished, block + size, block)
        size = torch.where(finished, random_integers(seed, rows.samples, blocks, low, high), size)
        active, commit, view, is_stuck = torch.stack(
            [(~rows.done).sum(), (block - length).amax(), (block + size).amax(), stuck.long()]
        ).tolist()
        if is_stuck:
            raise UserError(
                f"the sampler {settings.sampler!r} revealed nothing in a block that has masks; it would never end"
            )
        if not active:
            return
