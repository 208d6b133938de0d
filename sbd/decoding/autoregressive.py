"""Next-token decoding: one token per pass. Also the prefill that every decoder starts with."""

from __future__ import annotations

import torch
from torch import Tensor

from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows
from sbd.samplers import entropies


def prefill(engine: Engine, rows: Rows) -> Tensor:
    """A causal pass over the prompts, whose keys and values are kept; hidden states [batch, prompt, hidden].

    Rows shorter than the longest carry junk behind their prompt: causality keeps it from the prompt, and later passes
    overwrite it.
    """
    width = max(rows.request.lengths)
    slots = torch.arange(width, device=rows.start.device).expand(rows.batch, -1)
    return engine.forward(rows.sequence[:, :width], slots, "causal", view=width)


def decode(engine: Engine, rows: Rows) -> None:
    """Until every row is done: the last token goes in, the next comes out; the prefill gives the first token."""
    lengths = rows.request.lengths
    equal = len(set(lengths)) == 1  # then all slots in view are visible to every row and no mask is needed
    query = rows.start - 1
    logits = engine.logits(prefill(engine, rows), query)
    newest = max(lengths)
    while True:
        position = query + 1
        rows.pass_number += 1
        recorded = None if rows.entropy is None else entropies(logits)
        tokens = rows.choose(logits, position)
        rows.reveal(position, tokens, rows.running, entropies=recorded)
        query = position
        rows.advance(query + 1, width=1)
        active = int(rows.running.sum())
        if not active:
            return
        newest += 1
        thin = engine.packs(active, query.shape)
        needed = rows.running if thin else None
        limit = "all" if equal and not thin else query + 1
        logits = engine.logits(engine.forward(tokens, query, limit, newest, needed=needed))
