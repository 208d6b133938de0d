"""Self-speculative decoding: masked predictions draft, next-token predictions of the same weights verify, in one pass.

Behind a row's committed length a pass carries a token c that is certain (the next-token prediction of the pass before),
drafts behind it, and groups of k masks, each laid behind one number ``a`` of accepted tokens:

    | committed | c d2 d3 .. dn (causal) | k masks at positions length + a1 .. | k masks at length + a2 .. | ...
                ^ length

A group sees the committed tokens, the first ``a`` of the drafts, and itself. Drafts are accepted while they equal the
next-token prediction before them; the prediction behind the last accepted one is the next certain token, and the group
laid behind that number, if there is one, has drafted what follows it. Groups use slots that are scratch: slot and
position differ. Every token of the text is a next-token prediction from exact keys and values, so the text is that of
autoregressive decoding. SDLM and TiDAR lay the same tree; the choice of the likeliest branches is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows, to_device, to_host
from sbd.decoding.settings import SelfSpeculative
from sbd.samplers import entropies, token_probabilities

_LONG_PROMPT = 4096
"""From here on, the mask that a group in the prefill needs costs more than the pass it saves is worth."""


@dataclass
class _Drafts:
    """Candidates of every row: ``tokens`` [batch, k], the first one certain; the first ``count`` [batch, 1] are there.

    ``chance`` [batch, k] is the probability that the model gives each candidate, 0 behind ``count``.
    """

    tokens: np.ndarray
    count: np.ndarray
    chance: np.ndarray

    def of(self, kept: list[int]) -> _Drafts:
        """Those of some rows."""
        return _Drafts(self.tokens[kept], self.count[kept], self.chance[kept])


def decode(engine: Engine, rows: Rows, settings: SelfSpeculative) -> None:
    """Until every row is done: verify the drafts and draft behind what may be accepted."""
    k = settings.block_size
    column = np.arange(k)
    row, length = np.arange(rows.batch), rows.start
    drafts = _prefill(engine, rows, k)
    layouts: dict[tuple[int, int], _Layout] = {}
    while any(rows.is_running):
        kept = engine.leave_done([rows.is_running[number] for number in row])
        if kept is not None:
            row, length, drafts = row[kept], length[kept], drafts.of(kept)
        running = rows.running(row)
        counts = drafts.count[running]
        width, undrafted = int(counts.max()), int((counts == 1).any())
        groups = min(settings.branches, width) or undrafted
        after = _likeliest(drafts.chance[:, :width], groups)
        # With no branches a group only serves rows that had nothing to verify, whatever the rest of the batch laid.
        lays = drafts.count == 1 if settings.branches == 0 else None
        if (width, groups) not in layouts:
            layouts[width, groups] = _Layout.of(width, groups, k)
        view = int(length[running].max()) + width + groups * k
        hidden = _pass(
            engine, rows.request.mask_token, drafts, layouts[width, groups], width, length, after, lays, running, view
        )
        rows.pass_number += 1

        logits = engine.logits(hidden[:, :width])
        targets = length + 1 + column[:width]
        verdict = to_host(rows.choose(logits, targets, row))
        agrees = (verdict[:, :-1] == drafts.tokens[:, 1:width]) & (column[1:width] < drafts.count)
        accepted = (1 + np.logical_and.accumulate(agrees, 1).sum(1, keepdims=True)) * running
        recorded = None if rows.entropy is None else entropies(logits)
        rows.reveal_where(row, targets, verdict, column[:width] < accepted, recorded)

        certain = np.take_along_axis(verdict, np.maximum(accepted - 1, 0), 1)
        laid = after == accepted if lays is None else (after == accepted) & lays
        length = length + accepted
        rows.advance_all(row, length + 1)
        if not any(rows.is_running):
            return
        del logits  # of the candidates; those of the drafts are as large
        first = width + laid.argmax(1)[:, None] * k if groups else None
        drafts = _draft(engine, rows, row, hidden, first, length, certain, laid.any(1, keepdims=True), k)


def _prefill(engine: Engine, rows: Rows, k: int) -> _Drafts:
    """The prompts, causal, with a first group of masks behind each; reveals the first token."""
    batch, start, width, device = rows.batch, rows.start, max(rows.request.lengths), engine.device
    rows.pass_number = 1
    last = to_device(start - 1, device)
    if width < _LONG_PROMPT and k > 1:
        column = np.arange(width + k)
        in_group = column >= width
        tokens = np.where(in_group, rows.request.mask_token, rows.sequence[:, : width + k])
        slots = np.tile(column, (batch, 1))
        positions = np.where(in_group, start + column - width, slots)
        limit = np.where(in_group, start, slots + 1)
        low, high = np.tile(in_group * width, (batch, 1)), np.tile(in_group * (width + k), (batch, 1))
        hidden = _forward(engine, tokens, slots, limit, width + k, positions, (low, high))
        first = np.full_like(start, width)
    else:
        hidden, first = prefill(engine, rows), None
    logits = engine.logits(hidden, last)
    row, every = np.arange(batch), np.ones_like(start, dtype=bool)
    certain = to_host(rows.choose(logits, start, row))
    rows.reveal_where(row, start, certain, every, None if rows.entropy is None else entropies(logits))
    rows.advance_all(row, start + 1)
    return _draft(engine, rows, row, hidden, first, start, certain, every, k)


@dataclass
class _Layout:
    """What is the same in all passes of ``width`` candidates and ``groups`` groups of k masks; each [query].

    group: 0 for candidates, and from 1 the group of a mask. place: the place within the candidates or the group.
    candidate: one more than the place of a candidate, 0 for masks. size: k for masks, 0 for candidates.
    """

    group: np.ndarray
    place: np.ndarray
    candidate: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, width: int, groups: int, k: int) -> _Layout:
        query = np.arange(width + groups * k)
        is_mask = query >= width
        place = np.where(is_mask, (query - width) % k, query)
        return cls(
            group=((query - width) // k + 1) * is_mask,
            place=place,
            candidate=(place + 1) * ~is_mask,
            size=k * is_mask,
        )


def _pass(
    engine: Engine,
    mask_token: int,
    drafts: _Drafts,
    layout: _Layout,
    width: int,
    length: np.ndarray,
    after: np.ndarray,
    lays: np.ndarray | None,
    running: np.ndarray,
    view: int,
) -> Tensor:
    """One pass: the first ``width`` candidates, and k masks behind each number in ``after`` [batch, groups].

    lays: the rows [batch, 1] that need these masks; None for all. running: those that are not done.
    """
    queries = len(layout.group)
    # Of a candidate, how many candidates up to itself; of a mask, how many its group is laid behind.
    seen = np.concatenate([np.zeros_like(length), after], 1)[:, layout.group] + layout.candidate
    slots = length + np.arange(queries)
    low = slots - layout.place
    needed = (seen <= drafts.count) & running
    if lays is not None:
        needed &= lays | (layout.candidate > 0)
    tokens = np.full((len(length), queries), mask_token)
    tokens[:, :width] = drafts.tokens[:, :width]
    positions = length + seen + (layout.place - layout.candidate)
    return _forward(engine, tokens, slots, length + seen, view, positions, (low, low + layout.size), needed)


def _forward(
    engine: Engine,
    tokens: np.ndarray,
    slots: np.ndarray,
    limit: np.ndarray,
    view: int,
    positions: np.ndarray,
    own: tuple[np.ndarray, np.ndarray],
    needed: np.ndarray | None = None,
) -> Tensor:
    """``Engine.forward`` of arrays, each [batch, query]."""
    inputs = (to_device(values, engine.device) for values in (tokens, slots, limit, positions, *own))
    on_device, at, below, places, low, high = inputs
    return engine.forward(on_device, at, below, view, places, (low, high), needed)


def _draft(
    engine: Engine,
    rows: Rows,
    row: np.ndarray,
    hidden: Tensor,
    first: np.ndarray | None,
    length: np.ndarray,
    certain: np.ndarray,
    laid: np.ndarray,
    k: int,
) -> _Drafts:
    """Candidates of the rows ``row`` [batch], where ``laid`` [batch, 1], from the group whose masks start at query
    ``first`` [batch, 1].
    """
    tokens, chance = np.zeros((len(row), k), dtype=np.int64), np.zeros((len(row), k))
    tokens[:, :1], chance[:, :1] = certain, 1
    if first is None or k == 1:
        return _Drafts(tokens, np.ones_like(length), chance)
    column = np.arange(1, k)
    logits = engine.logits(hidden, to_device(first + column, engine.device))
    drafted = rows.choose(logits, length + column, row)
    tokens[:, 1:], chance[:, 1:] = to_host(drafted), to_host(token_probabilities(logits, drafted)) * laid
    return _Drafts(tokens, np.where(laid, k, 1), chance)


def _likeliest(chance: np.ndarray, groups: int) -> np.ndarray:
    """The ``groups`` likeliest numbers of accepted candidates, from 1: [batch, groups]; chance [batch, width].

    Exactly a candidates are accepted when the first a are and the next is not.
    """
    following = np.zeros_like(chance)
    following[:, :-1] = chance[:, 1:]
    exactly = chance.cumprod(1) * (1 - following)
    return 1 + np.argsort(-exactly, axis=1, kind="stable")[:, :groups]
