"""Longest-prefix decoding of SDLM: keep the longest sure beginning of a block, then start the next block behind it.

    | committed | accepted tokens but the last (causal) | last known token, D - 1 masks (bidirectional) |
                ^ length                                ^ anchor

The last known token stands only in its block, which sees clean tokens strictly before it, as in training; its causal
keys and values are written when it has become one of the tokens before the next anchor. Slot j of the block predicts
the token at position anchor + j + 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows
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
    k = settings.block_size
    column = torch.arange(2 * k, device=rows.start.device)
    prefill(engine, rows)
    length = anchor = rows.start - 1
    commit, view = 0, max(rows.request.lengths) - 1 + k
    while True:
        rows.is_block_start.scatter_(1, anchor + 1, True)
        slots = length + column[: k + engine.width(commit, k)]
        # The masks behind the anchor are in the sequence already: everything that is not accepted is a mask there.
        limit = torch.where(slots < anchor, slots + 1, anchor + k)
        needed = (slots < anchor + k) & rows.running
        hidden = engine.forward(rows.sequence.gather(1, slots), slots, limit, view, needed=needed)
        rows.pass_number += 1
        logits = engine.logits(hidden, anchor - length + column[:k])
        positions = anchor + 1 + column[:k]
        tokens = rows.choose(logits, positions)
        entropy = None if rows.entropy is None else entropies(logits)
        count = _accepted(settings, logits, tokens, entropy)[:, None]
        del logits  # the next pass makes as many
        rows.reveal(positions, tokens, (column[:k] < count) & rows.running, entropies=entropy)
        before, anchor = anchor, torch.where(rows.running, anchor + count, anchor)
        rows.advance(anchor + 1, width=k)
        length = torch.where(rows.running, before, anchor)  # a row that is done commits nothing more
        active = [row for row in torch.cat([rows.running, anchor - length, anchor + k], 1).tolist() if row[0]]
        if not active:
            return
        commit, view = (max(row[place] for row in active) for place in (1, 2))
