"""Next-token decoding: one token per pass. Also the prefill that every decoder starts with."""

from __future__ import annotations

import torch
from torch import Tensor

from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows, to_device, to_host
from sbd.samplers import entropies


def prefill(engine: Engine, rows: Rows) -> Tensor:
    """A causal pass over the prompts, whose keys and values are kept; hidden states [batch, prompt, hidden].

    Rows shorter than the longest carry junk behind their prompt: causality keeps it from the prompt, and later passes
    overwrite it.
    """
    width = max(rows.request.lengths)
    slots = torch.arange(width, device=engine.device).expand(rows.batch, -1)
    return engine.forward(to_device(rows.sequence[:, :width], engine.device), slots, "causal", view=width)


def decode(engine: Engine, rows: Rows) -> None:
    """Until every row is done: the last token goes in, the next comes out; the prefill gives the first token."""
    lengths = rows.request.lengths
    equal = len(set(lengths)) == 1  # then all slots in view are visible to every row and no mask is needed
    query = rows.start - 1
    logits = engine.logits(prefill(engine, rows), to_device(query, engine.device))
    newest = max(lengths)
    while True:
        query = query + 1
        rows.pass_number += 1
        recorded = None if rows.entropy is None else entropies(logits)
        tokens = rows.choose(logits, query)
        rows.reveal(query, to_host(tokens), rows.running, recorded)
        rows.advance(query + 1)
        active = int(rows.running.sum())
        if not active:
            return
        newest += 1
        thin = engine.packs(active, query.shape)
        slots = to_device(query, engine.device)
        needed = rows.running if thin else None
        limit = "all" if equal and not thin else slots + 1
        logits = engine.logits(engine.forward(tokens, slots, limit, newest, needed=needed))
