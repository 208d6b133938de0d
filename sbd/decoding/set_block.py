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
from sbd.decoding.open_slots import OpenSlots
from sbd.decoding.randomness import random_integers
from sbd.decoding.rows import Rows, to_device, to_host
from sbd.decoding.settings import SetBlock
from sbd.errors import UserError
from sbd.samplers import Sampler, entropies, is_two_step


def decode(engine: Engine, rows: Rows, settings: SetBlock) -> None:
    """Until every row is done: one pass, one choice of what to reveal, a new block for rows that finished one."""
    low, high = settings.sizes
    mask_token, device, sampler = rows.request.mask_token, engine.device, settings.sampler
    two_step = is_two_step(sampler)
    fused, one_size, ahead = settings.commit == "fused", low == high, settings.first_token == "next_token"
    column = np.arange(2 * high)
    block_column = column[:high]

    length = block = rows.start  # where the committed tokens end, and where the block starts
    number = np.zeros_like(length)
    end = block + _sizes(rows, settings, number)
    committing = np.zeros_like(rows.running)
    prompts = prefill(engine, rows)
    known = _Last(prompts, rows.start, rows.running) if ahead else None
    commit, view = 0, max(rows.request.lengths) + high
    rows.start_blocks(block)

    while True:
        slots = length + column[: high + engine.width(commit, high) if fused else high]
        tokens = rows.at(slots)
        if fused and commit:
            offset, positions = block - length + block_column, block + block_column
            filled = rows.at(positions)
        else:  # every block starts at the first query, or, in a pass that only commits, is not looked at
            offset, positions, filled = None, slots[:, :high], tokens[:, :high]
        masked = (filled == mask_token) & rows.running
        if not one_size:
            masked &= positions < end
        if not fused:
            masked &= ~committing
        # What stands behind the end of the text is no part of it: no pass is spent on it.
        open_slots = masked & (positions < rows.end)
        count = int(np.count_nonzero(open_slots))
        is_choice = count > 1  # else every sampler reveals what is open
        picked = None
        if known is None and (two_step or not is_choice) and engine.picks(count, open_slots.size):
            picked = OpenSlots(open_slots)
        limit = needed = None
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
        decided = None
        if offset is not None and ahead:
            # The state that predicts the first slot is that of the token before it, in this very pass.
            offset[:, 0] -= committing[:, 0]
            decided = committing
        if picked is not None:
            logits = engine.logits(picked.states(hidden, offset))
        elif offset is not None:
            logits = engine.logits(hidden, to_device(offset, device))
        elif known is not None:
            logits, decided, known = engine.logits(known.before(hidden[:, :high])), known.rows, None
        else:
            logits = engine.logits(hidden[:, :high])
        if ahead and commit and not fused:  # the pass behind it looks at the block
            known = _Last(hidden, block - length, committing)

        choice = _Choice(sampler, logits, open_slots, picked) if is_choice else None
        if picked is None:
            chosen = rows.choose(logits, positions)
        else:
            chosen = rows.choose(logits, picked.take(positions), picked.row)
        recorded = None if rows.entropy is None else entropies(logits)
        del logits  # the next pass makes as many
        reveal = open_slots if choice is None else choice.on_host()
        if decided is not None:
            reveal[:, :1] |= masked[:, :1] & decided
        tokens = to_host(chosen)
        if picked is not None:
            tokens, recorded = picked.spread(tokens), None if recorded is None else picked.spread(to_host(recorded))
        if not rows.reveal(positions, tokens, reveal, recorded) and is_choice:
            engine.check()
            raise UserError(f"the sampler {sampler!r} revealed nothing in a block that has masks; it would never end")

        behind = np.where(masked > reveal, positions, end).min(1, keepdims=True)
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


class _Choice:
    """What the sampler reveals of ``open_slots`` [batch, k]: begun on the device, read once all else is on its way.

    logits: of all slots [batch, k, vocab], or, for a sampler of two steps, of those ``picked`` [open, 1, vocab].
    """

    def __init__(self, sampler: Sampler, logits: Tensor, open_slots: np.ndarray, picked: OpenSlots | None):
        self.sampler, self.open_slots, self.picked = sampler, open_slots, picked
        self.select = None
        if is_two_step(sampler):
            self.found, self.select = sampler.scores(logits), sampler.select
        else:
            self.found = (sampler(logits, to_device(open_slots, logits.device)),)

    def on_host(self) -> np.ndarray:
        """Reveal [batch, k]."""
        if not all(isinstance(values, Tensor) for values in self.found):
            raise self._unfit()
        found = tuple(map(to_host, self.found))
        if self.picked is not None:
            if any(values.shape != (len(self.picked.row), 1) for values in found):
                raise self._unfit()
            found = tuple(map(self.picked.spread, found))
        reveal = found[0] if self.select is None else self.select(found, self.open_slots)
        if reveal.shape != self.open_slots.shape or reveal.dtype != bool:
            raise self._unfit()
        return reveal & self.open_slots

    def _unfit(self) -> UserError:
        shape = list(self.open_slots.shape)
        return UserError(f"the sampler {self.sampler!r} must return a bool tensor of shape [batch, k], here {shape}")


class _Last:
    """States of the last committed tokens, where the pass that looks at the block behind them is another one.

    ``rows`` [batch, 1] have one. hidden: the states of the pass that commits the first ``count`` [batch, 1] queries.
    """

    def __init__(self, hidden: Tensor, count: np.ndarray, rows: np.ndarray):
        self.rows = rows
        last = to_device(np.maximum(count - 1, 0), hidden.device)
        self.states = hidden.gather(1, last[..., None].expand(-1, -1, hidden.shape[-1]))

    def before(self, states: Tensor) -> Tensor:
        """States of a block [batch, k, hidden], the first one replaced: its token is predicted by the one before."""
        rows = to_device(self.rows, states.device)[..., None]
        return torch.cat((torch.where(rows, self.states, states[:, :1]), states[:, 1:]), 1)
