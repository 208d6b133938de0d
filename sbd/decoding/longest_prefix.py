"""Longest-prefix decoding of SDLM: keep the longest sure beginning of a block, then start the next block behind it.

    | committed | accepted tokens but the last (causal) | last known token, D - 1 masks (bidirectional) |
                ^ length                                ^ anchor

The last known token stands only in its block, which sees clean tokens strictly before it, as in training; its causal
keys and values are written when it has become one of the tokens before the next anchor. Slot j of the block predicts
the token at position anchor + j + 1.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows, to_device, to_host
from sbd.decoding.settings import LongestPrefix
from sbd.samplers import entropies, token_probabilities


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


def decode(engine: Engine, rows: Rows, settings: LongestPrefix) -> None:
    """Until every row is done: commit what was accepted, predict a block, accept its longest sure prefix."""
    k, device = settings.block_size, engine.device
    column = np.arange(2 * k)
    block_column = column[:k]
    prefill(engine, rows)
    row = np.arange(rows.batch)
    length = anchor = rows.start - 1
    commit, view = 0, max(rows.request.lengths) - 1 + k
    while True:
        for number, position in zip(row.tolist(), anchor[:, 0].tolist(), strict=True):
            rows.start_block(number, position + 1)
        running = rows.running(row)
        slots = length + column[: k + engine.width(commit, k)]
        # The masks behind the anchor are in the sequence already: everything that is not accepted is a mask there.
        limit = np.where(slots < anchor, slots + 1, anchor + k)
        hidden = engine.forward(
            to_device(rows.at(slots, row), device),
            to_device(slots, device),
            to_device(limit, device),
            view,
            needed=(slots < anchor + k) & running,
        )
        rows.pass_number += 1
        logits = engine.logits(hidden, to_device(anchor - length + block_column, device))
        positions = anchor + 1 + block_column
        tokens = rows.choose(logits, positions, row)
        entropy = None if rows.entropy is None else entropies(logits)
        count = to_host(_accepted(settings, logits, tokens, entropy))[:, None]
        del logits  # the next pass makes as many
        rows.reveal_where(row, positions, to_host(tokens), (block_column < count) & running, entropy)
        before, anchor = anchor, np.where(running, anchor + count, anchor)
        rows.advance_all(row, anchor + 1)
        if not any(rows.is_running):
            return
        running = rows.running(row)
        length = np.where(running, before, anchor)  # a row that is done commits nothing more
        kept = engine.leave_done(running[:, 0].tolist())
        if kept is not None:
            row, running, length, anchor = row[kept], running[kept], length[kept], anchor[kept]
        commit, view = int((anchor - length).max()), int(anchor[running].max()) + k
