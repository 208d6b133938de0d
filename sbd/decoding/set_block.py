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
    fused, one_size = settings.commit == "fused", low == high
    column = torch.arange(2 * high, device=rows.start.device)
    block_column = column[:high]

    def draw(number: Tensor) -> Tensor:
        return random_integers(seed, rows.samples, number[:, 0], low, high)[:, None]

    length = block = rows.start  # where the committed tokens end, and where the block starts
    number = torch.zeros_like(length)
    end = block + draw(number)
    committing = torch.zeros_like(rows.running)
    prompts = prefill(engine, rows)
    ahead = _Ahead(engine, rows, prompts, fused) if settings.first_token == "next_token" else None
    commit, view = 0, max(rows.request.lengths) + high
    rows.is_block_start.scatter_(1, block, True)

    while True:
        slots = length + column[: high + engine.width(commit, high) if fused else high]
        tokens = rows.sequence.gather(1, slots)
        if rows.batch == 1 and one_size and commit == 0:  # one whole block: nothing is hidden, all is needed
            hidden = engine.forward(tokens, slots, "all", view)
        else:
            limit = torch.where(slots < block, slots + 1, end) if commit else end
            hidden = engine.forward(tokens, slots, limit, view, needed=(slots < end) & rows.running)
        rows.pass_number += 1

        if fused and commit:
            offset = (block - length) + block_column
            logits, positions = engine.logits(hidden, offset), block + block_column
            filled = rows.sequence.gather(1, positions)
        else:  # every block starts at the first query, or, in a pass that only commits, is not looked at
            logits, positions, filled = engine.logits(hidden[:, :high]), slots[:, :high], tokens[:, :high]
        decided = None if ahead is None else ahead.decide(logits, hidden, block - length, committing, commit)

        masked = (filled == mask_token).logical_and_(rows.running)
        if not one_size:
            masked &= positions < end
        if not fused:
            masked &= ~committing
        # What stands behind the end of the text is no part of it: no pass is spent on it.
        open_slots = masked & (positions < rows.end)
        reveal = settings.sampler(logits, open_slots) & open_slots
        stuck = open_slots.any(1, keepdim=True) > reveal.any(1, keepdim=True)
        if decided is not None:
            reveal[:, :1] |= masked[:, :1] & decided
        recorded = None if rows.entropy is None else entropies(logits)
        rows.reveal(positions, rows.choose(logits, positions), reveal, filled, recorded)
        del logits  # the next pass makes as many

        behind = torch.where(masked & ~reveal, positions, end).amin(1, keepdim=True)
        if not fused:
            behind = torch.where(committing, block, behind)
        rows.advance(behind, width=high)

        length = block
        committing = (behind == end) & rows.running
        block = torch.where(committing, end, block)
        if one_size:
            end = block + high
        else:
            number = number + committing
            end = torch.where(committing, block + draw(number), end)
        state = torch.cat([rows.running, block - length, end, stuck], 1).tolist()
        active = [row for row in state if row[0]]
        if any(row[3] for row in state):
            raise UserError(
                f"the sampler {settings.sampler!r} revealed nothing in a block that has masks; it would never end"
            )
        if not active:
            return
        commit, view = (max(row[place] for row in active) for place in (1, 2))
        if commit:
            rows.is_block_start.scatter_(1, block, True)


class _Ahead:
    """The next-token prediction of the last committed token, which decides the first slot of the block behind it.

    It comes with the pass that commits. A fused one refines the next block as well and decides at once; a separate one
    looks at no block, and the pass behind it decides.
    """

    def __init__(self, engine: Engine, rows: Rows, hidden: Tensor, fused: bool):
        self.engine, self.fused = engine, fused
        self.fresh: Tensor | None = torch.ones_like(rows.running)
        self.logits = engine.logits(hidden, rows.start - 1)

    def decide(
        self, logits: Tensor, hidden: Tensor, committed: Tensor, committing: Tensor, commit: int
    ) -> Tensor | None:
        """Put the prediction into the first slot of ``logits`` [batch, k, vocab], in the rows that are returned.

        hidden: the states of this pass, which commits ``committed`` [batch, 1] tokens of the rows ``committing``
        [batch, 1], at most ``commit`` of a row. Returns [batch, 1], or None if no row is decided.
        """
        decided, found = self.fresh, self.logits
        self.fresh = None
        if commit:
            last = self.engine.logits(hidden, (committed - 1).clamp(min=0))
            if self.fused:
                decided, found = committing, last
            else:
                self.fresh, self.logits = committing, last
        if decided is not None:
            logits[:, :1] = torch.where(decided[..., None], found, logits[:, :1])
        return decided
