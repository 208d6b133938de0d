"""Longest-prefix decoding of SDLM: keep the longest sure beginning of a block, then start the next block behind it.

    | committed | accepted tokens but the last (causal) | last known token, D - 1 masks (bidirectional) |
                ^ length                                ^ anchor

The last known token stands only in its block, which sees clean tokens strictly before it, as in training; its causal
keys and values are written when it has become one of the tokens before the next anchor. Slot j of the block predicts
the token at position anchor + j + 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows, to_device
from sbd.decoding.settings import LongestPrefix
from sbd.samplers import entropies, token_probabilities


@dataclass(slots=True)
class _Anchor:
    """Where a row stands: ``length`` tokens are committed, the last known one is at position ``anchor``."""

    row: int
    length: int
    anchor: int

    @property
    def commits(self) -> int:
        """Tokens that the coming pass commits."""
        return self.anchor - self.length


def decode(engine: Engine, rows: Rows, settings: LongestPrefix) -> None:
    """Until every row is done: commit what was accepted, predict a block, accept its longest sure prefix."""
    k = settings.block_size
    prefill(engine, rows)
    anchors = [_Anchor(row, length - 1, length - 1) for row, length in enumerate(rows.request.lengths)]
    while True:
        hidden, starts = _pass(engine, rows, anchors, k)
        rows.pass_number += 1

        logits = engine.logits(_states(hidden, anchors, starts, k))
        positions = [range(at.anchor + 1, at.anchor + 1 + k) for at in anchors]
        chosen = rows.choose(logits, positions, [at.row for at in anchors])
        entropy = None if rows.entropy is None else entropies(logits)
        accepted = _accepted(settings, logits, chosen, entropy)
        del logits  # the next pass makes as many

        counts, tokens = accepted.tolist(), chosen.tolist()
        recorded = [[None] * k] * len(anchors) if entropy is None else entropy.tolist()
        for at, count, of_row, of_tokens in zip(anchors, counts, tokens, recorded, strict=True):
            if rows.is_running[at.row]:
                _accept(rows, at, of_row[:count], of_tokens[:count])
        if not any(rows.is_running):
            return
        kept = engine.leave_done([rows.is_running[at.row] for at in anchors])
        if kept is not None:
            anchors = [anchors[place] for place in kept]


def _pass(engine: Engine, rows: Rows, anchors: Sequence[_Anchor], k: int) -> tuple[Tensor, Sequence[int]]:
    """Hidden states [queries, hidden] of what is committed and of the blocks, and where those of each row start."""
    view = max(at.anchor for at in anchors if rows.is_running[at.row]) + k
    widths = [at.commits + k for at in anchors]
    width = k + engine.width(max(widths) - k, k)
    is_ragged = engine.packs(widths, width)
    sizes = widths if is_ragged else [width] * len(anchors)
    tokens, slots, limits = [], [], []
    for at, size in zip(anchors, sizes, strict=True):
        # The masks behind the anchor are in the sequence already: everything that is not accepted is a mask there.
        tokens.append(rows.sequence[at.row, at.length : at.length + size])
        slots.append(np.arange(at.length, at.length + size))
        limits.append([*range(at.length + 1, at.anchor + 1), *[at.anchor + k] * (size - at.commits)])
        if rows.is_running[at.row]:
            rows.start_block(at.row, at.anchor + 1)
    if is_ragged:
        line = np.concatenate(slots)
        of_line = (np.concatenate(tokens), line, engine.places(line, sizes), np.concatenate(limits))
        given, positions, places, limit = map(torch.from_numpy, of_line)
        return engine.line(given, positions, places, limit, sizes, view), [0, *accumulate(sizes[:-1])]
    given, positions, limit = (to_device(np.array(values), engine.device) for values in (tokens, slots, limits))
    return engine.forward(given, positions, limit, view).flatten(0, 1), range(0, len(anchors) * width, width)


def _states(hidden: Tensor, anchors: Sequence[_Anchor], starts: Sequence[int], k: int) -> Tensor:
    """Those of the blocks, [batch, k, hidden], of hidden [queries, hidden]."""
    first = [start + at.commits for at, start in zip(anchors, starts, strict=True)]
    queries = np.array(first)[:, None] + np.arange(k)
    return hidden.index_select(0, to_device(queries.flatten(), hidden.device)).view(len(anchors), k, -1)


def _accepted(settings: LongestPrefix, logits: Tensor, tokens: Tensor, entropy: Tensor | None) -> Tensor:
    """How many of the predicted tokens [batch, block] to keep, at least one: int64 [batch]."""
    if settings.confidence == "entropy":
        confidence = 1 - (entropies(logits) if entropy is None else entropy) / math.log(logits.shape[-1])
    else:
        confidence = token_probabilities(logits, tokens)
    if settings.rule == "each":
        passed = confidence > settings.threshold
    else:
        passed = confidence.cumprod(-1) >= settings.threshold
    return passed.long().cumprod(-1).sum(-1).clamp(min=1)


def _accept(rows: Rows, at: _Anchor, tokens: Sequence[int], recorded: Sequence[float | None]) -> None:
    """Reveal the tokens kept of a block; the last one is the next anchor."""
    at.length = at.anchor
    for token, entropy in zip(tokens, recorded, strict=True):
        at.anchor += 1
        rows.reveal(at.row, at.anchor, token, entropy)
    rows.advance(at.row, at.anchor + 1)
    if not rows.is_running[at.row]:
        at.length = at.anchor  # it commits nothing more
