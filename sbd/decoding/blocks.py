"""Blocks on their way: which states of a pass are looked at for them, and which of their masks a sampler reveals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sbd.decoding.rows import to_device
from sbd.errors import UserError
from sbd.samplers import Sampler, TwoStep


@dataclass(slots=True)
class Block:
    """The block of a row, positions ``start`` to ``end``. The tokens from ``length`` to it are not yet committed.

    ``masks``: its positions, ascending, that are to be revealed. ``number``: how many blocks of the row were before it.
    ``before``: the state of the token before it, where a pass before the first one that looks at the block computed it.
    """

    row: int
    length: int
    start: int
    end: int
    masks: list[int] = field(default_factory=list)
    number: int = 0
    before: Tensor | None = None
    open: list[int] = field(default_factory=list)
    """The masks that the coming pass may reveal: all, or none if it only commits the block before."""
    width: int = 0
    """Slots of the coming pass that matter, from ``length`` on."""

    @property
    def commits(self) -> int:
        """Tokens before the block that the coming pass commits."""
        return self.start - self.length

    def enter_pass(self, fused: bool) -> None:
        """Set what the coming pass does."""
        if fused or self.length == self.start:
            self.open, self.width = self.masks, self.end - self.length
        else:
            self.open, self.width = [], self.commits


class Look:
    """The states of a pass that are looked at: all ``size`` slots of the blocks, or the open ones ``alone``.

    The latter spares LM head, sampler and choice of tokens all others where a pass costs what it computes, as on a CPU.
    States are [n, m]: [blocks, size], or [open, 1]. ``places``: for each block, where its open slots lie among all
    n x m. ``ahead``: the first slot of a block is decided by the state of the token before it, as soon as there is one;
    ``decided``: the blocks where this pass has it.
    """

    __slots__ = ("_alone", "_before", "_blocks", "_queries", "_size", "_starts", "decided", "places")

    def __init__(
        self, blocks: Sequence[Block], starts: Sequence[int], queries: int, size: int, alone: bool, ahead: bool
    ):
        """``starts``: where those of each block start among the ``queries`` of the pass."""
        self._blocks, self._starts, self._size, self._alone = blocks, starts, size, alone
        self.places: list[Sequence[int]] = []
        count = 0
        if alone:
            for block in blocks:
                self.places.append(range(count, count + len(block.open)))
                count += len(block.open)
        else:
            for block in blocks:
                first = count - block.start
                self.places.append([first + position for position in block.open])
                count += size
        self._queries: list[int] | None = None  # counted over all blocks; None for all there are
        if alone or queries != size * len(blocks) or any(block.commits for block in blocks):
            self._queries = self._looked_at(queries)
        self._before: list[tuple[int, Tensor]] = []
        self.decided = self._decided() if ahead else [False] * len(blocks)

    def _looked_at(self, count: int) -> list[int]:
        queries = []
        for block, start in zip(self._blocks, self._starts, strict=True):
            begin = start - block.length
            if self._alone:
                queries += [begin + position for position in block.open]
            else:
                begin += block.start
                # It may be smaller, or only commit: then anything is looked at.
                queries += [min(begin + slot, count - 1) for slot in range(self._size)]
        return queries

    def _decided(self) -> list[bool]:
        """Take the state before a block in place of that of its first slot, where there is one."""
        count, decided = 0, []
        for block in self._blocks:
            is_decided = bool(block.open) and (block.commits > 0 or block.before is not None)
            if is_decided and block.before is not None:
                self._before.append((count, block.before))
            elif is_decided:
                assert self._queries is not None
                self._queries[count] -= 1
            decided.append(is_decided)
            count += len(block.open) if self._alone else self._size
        return decided

    def positions(self) -> tuple[list[Sequence[int]], list[int]]:
        """Where they stand, [n, m], and in which rows, [n]."""
        if self._alone:
            whose = [(position, block.row) for block in self._blocks for position in block.open]
            return [(position,) for position, _ in whose], [row for _, row in whose]
        return (
            [range(block.start, block.start + self._size) for block in self._blocks],
            [block.row for block in self._blocks],
        )

    def states(self, hidden: Tensor) -> Tensor:
        """States [n, m, hidden] of those of the pass [queries, hidden], which may be written to."""
        if self._queries is not None:
            hidden = hidden.index_select(0, to_device(np.array(self._queries), hidden.device))
        for place, state in self._before:
            hidden[place] = state
        return hidden.view(-1, 1 if self._alone else self._size, hidden.shape[-1])


class Choice:
    """What a sampler reveals: begun on the device, read once all else is on its way.

    logits: [n, m, vocab] of what is looked at; places: for each block, where its open slots lie among all n x m. A
    sampler that is not of two steps must be given whole blocks.
    """

    def __init__(self, sampler: Sampler, two_step: TwoStep | None, logits: Tensor, places: Sequence[Sequence[int]]):
        """``two_step``: the sampler, if it is of two steps."""
        self.places, self.select_row = places, None
        shape = logits.shape[:2]
        if two_step is not None:
            self.found, self.select_row = two_step.scores(logits), two_step.select_row
        else:
            is_open = np.zeros(shape.numel(), dtype=bool)
            is_open[[place for of_block in places for place in of_block]] = True
            self.found = (sampler(logits, to_device(is_open.reshape(shape), logits.device)),)
        for values in self.found:
            fits = isinstance(values, Tensor) and values.shape == shape
            if not fits or (two_step is None and values.dtype != torch.bool):
                what = "return a bool tensor" if two_step is None else "give scores, each a tensor"
                raise UserError(f"the sampler {sampler!r} must {what} of shape [batch, k], here {list(shape)}")

    def on_host(self) -> list[Sequence[int]]:
        """For each block, which of its open slots are revealed, as indices of these."""
        found = [values.reshape(-1).tolist() for values in self.found]
        if self.select_row is None:
            return [[number for number, place in enumerate(places) if found[0][place]] for places in self.places]
        return [
            self.select_row(*([values[place] for place in places] for values in found)) if places else []
            for places in self.places
        ]
