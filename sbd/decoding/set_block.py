"""Set Block Decoding: algorithm 3 of the paper, every row at its own pace.

Slot = position, so the finished previous block and the new masks lie side by side behind a row's committed length:

    | committed: length slots | finished block (causal) | block: k masks or revealed tokens (bidirectional) | junk |
                              ^ length                  ^ start                                             ^ end

A row that refines has no finished block to commit and its block starts at its length. All rows of a pass are as wide as
the widest: 2k while some row commits, k otherwise; what lies behind a shorter row is junk that nobody attends to. On a
CPU, where that would cost time, rows of different width go in one line without it.

The paper does not say what happens behind an end token within a block, or behind the last token that is asked for. Here
such a slot stays a mask, the former once the end token is revealed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.blocks import Block, Choice, Look
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import random_integers
from sbd.decoding.rows import Rows, most_likely, to_device
from sbd.decoding.settings import SetBlock
from sbd.errors import UserError
from sbd.samplers import TwoStep, entropies, is_two_step


def decode(engine: Engine, rows: Rows, settings: SetBlock) -> None:
    """Until every row is done: one pass, one choice of what to reveal, a new block for rows that finished one."""
    fused, ahead = settings.commit == "fused", settings.first_token == "next_token"
    two_step = settings.sampler if is_two_step(settings.sampler) else None  # asked for once, for it takes time to tell
    hidden = prefill(engine, rows)
    blocks = [Block(row, length, length, length) for row, length in enumerate(rows.request.lengths)]
    _begin(rows, settings, blocks)
    if ahead:
        for block in blocks:
            block.before = hidden[block.row, block.start - 1].clone()

    while True:
        many = widest = 0
        for block in blocks:
            block.enter_pass(fused)
            many += len(block.open)
            widest = max(widest, block.width)
        width = engine.width(widest, settings.sizes[1])
        hidden, starts = _pass(engine, rows, blocks, width)
        rows.pass_number += 1
        if many:  # else the pass only commits
            _reveal(engine, rows, settings, two_step, blocks, hidden, starts, many)

        for start, block in zip(starts, blocks, strict=True):
            is_next = ahead and not fused and block.commits > 0  # the pass behind this one looks at the block
            block.before = hidden[start + block.commits - 1].clone() if is_next else None
        finished = [block for block in blocks if _advance(rows, block)]
        if not any(rows.is_running):
            return
        kept = engine.leave_done([rows.is_running[block.row] for block in blocks])
        if kept is not None:
            blocks = [blocks[place] for place in kept]
        if finished:
            _begin(rows, settings, finished)


def _pass(engine: Engine, rows: Rows, blocks: Sequence[Block], width: int) -> tuple[Tensor, Sequence[int]]:
    """Hidden states [queries, hidden] of the slots behind what is committed of each row, and where each row starts."""
    ends, view, is_ragged, commits = [], 0, False, False
    for block in blocks:  # once for all, since each way through takes its time
        ends.append(block.end)
        if rows.is_running[block.row]:
            view = max(view, block.end)
        is_ragged |= block.width < width
        commits |= block.commits > 0
    if is_ragged and engine.packs(widths := [block.width for block in blocks], width):
        return _line(engine, rows, blocks, widths, view)

    device, number = engine.device, engine.numbers
    # Slices, no arithmetic of arrays: behind a pass of the model nothing of it is in the caches of the processor.
    slots = _stack([number[block.length : block.length + width] for block in blocks])
    tokens = _stack([rows.sequence[block.row, block.length : block.length + width] for block in blocks])
    limit = None
    if commits:
        limit = np.array([[end] * width for end in ends])
        for seen, block in zip(limit, blocks, strict=True):
            seen[: block.commits] = number[block.length + 1 : block.start + 1]
    elif is_ragged or min(ends) < view:
        limit = np.array([[end] for end in ends])
    hidden = engine.forward(
        to_device(tokens, device),
        to_device(slots, device),
        "all" if limit is None else to_device(limit, device),
        view,
    )
    return hidden.flatten(0, 1), range(0, len(blocks) * width, width)


def _line(
    engine: Engine, rows: Rows, blocks: Sequence[Block], widths: list[int], view: int
) -> tuple[Tensor, Sequence[int]]:
    """The same where blocks differ in width, with no more queries than they have."""
    number, capacity = engine.numbers, engine.cache.capacity
    tokens, slots, places, limit, starts = [], [], [], [], []
    count = 0
    for place, (block, width) in enumerate(zip(blocks, widths, strict=True)):
        begin, end, row = block.length, block.length + width, place * capacity
        tokens.append(rows.sequence[block.row, begin:end])
        slots.append(number[begin:end])
        places.append(number[row + begin : row + end])
        limit += [*range(begin + 1, block.start + 1), *[block.end] * (width - block.commits)]
        starts.append(count)
        count += width
    below = torch.from_numpy(np.array(limit))
    return engine.line(_joined(tokens), _joined(slots), _joined(places), below, widths, view), starts


def _joined(parts: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))


def _stack(parts: list[np.ndarray]) -> np.ndarray:
    """The same as np.array, without the copy where there is one."""
    return parts[0][None] if len(parts) == 1 else np.array(parts)


def _reveal(
    engine: Engine,
    rows: Rows,
    settings: SetBlock,
    two_step: TwoStep | None,
    blocks: Sequence[Block],
    hidden: Tensor,
    starts: Sequence[int],
    many: int,
) -> None:
    """Of the ``many`` open slots of the blocks, reveal those that the sampler chooses.

    hidden: [queries, hidden] of the pass, each row from its start on. ``two_step``: the sampler, if it is of two steps.
    """
    sampler, high, ahead = settings.sampler, settings.sizes[1], settings.first_token == "next_token"
    is_choice = many > 1  # else every sampler reveals what is open
    alone = (two_step is not None or not is_choice) and engine.picks(many, len(blocks) * high)
    look = Look(blocks, starts, len(hidden), high, alone, ahead)
    logits = engine.logits(look.states(hidden))
    choice = Choice(sampler, two_step, logits, look.places) if is_choice else None
    # Where the states stand is asked for by chance only; it takes time to tell.
    chosen = most_likely(logits) if rows.request.sampling.greedy else rows.choose(logits, *look.positions())
    recorded = None if rows.entropy is None else entropies(logits)
    del logits  # the next pass makes as many

    reveals = [range(len(block.open)) for block in blocks] if choice is None else choice.on_host()
    tokens = chosen.reshape(-1).tolist()
    entropy = None if recorded is None else recorded.reshape(-1).tolist()
    count = 0
    for number, (block, revealed, places) in enumerate(zip(blocks, reveals, look.places, strict=True)):
        if look.decided[number]:
            revealed = {0, *revealed}
        for index in revealed:
            place = places[index]
            rows.reveal(block.row, block.open[index], tokens[place], None if entropy is None else entropy[place])
        count += len(revealed)
        if revealed:
            end = rows.end[block.row]
            block.masks = [at for index, at in enumerate(block.open) if index not in revealed and at < end]
    if is_choice and not count:
        engine.check()
        raise UserError(f"the sampler {sampler!r} revealed nothing in a block that has masks; it would never end")


def _advance(rows: Rows, block: Block) -> bool:
    """End of a pass for a block: what was before it is committed. Returns whether another one follows."""
    if not rows.is_running[block.row]:
        return False
    known = block.start if not block.open else block.masks[0] if block.masks else block.end
    rows.advance(block.row, known)
    block.length = block.start
    if not rows.is_running[block.row]:
        block.masks, block.length, block.start = [], block.end, block.end
        return False
    if not block.masks:
        block.start, block.number = block.end, block.number + 1
    return not block.masks


def _begin(rows: Rows, settings: SetBlock, blocks: Sequence[Block]) -> None:
    """Lay new blocks of masks behind where ``blocks`` end now."""
    low, high = settings.sizes
    sizes = [high] * len(blocks)
    if low < high:
        samples = rows.samples[[block.row for block in blocks]]
        draws = torch.tensor([block.number for block in blocks], device=samples.device)
        sizes = random_integers(rows.request.sampling.seed, samples, draws, low, high).tolist()
    for block, size in zip(blocks, sizes, strict=True):
        block.end = block.start + size
        block.masks = list(range(block.start, min(block.end, rows.end[block.row])))
        rows.start_block(block.row, block.start)
