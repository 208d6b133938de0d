"""Next-token decoding: one token per pass. Also the prefill that every decoder starts with."""

from __future__ import annotations

from torch import Tensor

from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows, to_device, to_host
from sbd.samplers import entropies


def prefill(engine: Engine, rows: Rows) -> Tensor:
    """The pass over the prompts, whose keys and values are kept; hidden states [batch, prompt, hidden]."""
    return engine.prefill(to_device(rows.sequence[:, : max(rows.request.lengths)], engine.device))


def decode(engine: Engine, rows: Rows) -> None:
    """Until every row is done: the last token goes in, the next comes out; the prefill gives the first token."""
    lengths = rows.request.lengths
    equal = len(set(lengths)) == 1  # then all slots in view are visible to every row and no mask is needed
    active = list(range(rows.batch))
    position = rows.start
    logits = engine.logits(prefill(engine, rows), to_device(position - 1, engine.device))
    newest = max(lengths)
    while True:
        rows.pass_number += 1
        recorded = None if rows.entropy is None else to_host(entropies(logits))[:, 0].tolist()
        tokens = rows.choose(logits, position, active)
        at = position[:, 0].tolist()
        for place, token in enumerate(to_host(tokens)[:, 0].tolist()):
            row = active[place]
            if rows.is_running[row]:
                rows.reveal(row, at[place], token, None if recorded is None else recorded[place])
                rows.advance(row, at[place] + 1)
        if not any(rows.is_running):
            return
        kept = engine.leave_done([rows.is_running[row] for row in active])
        if kept is not None:
            active, tokens, position = [active[place] for place in kept], tokens[kept], position[kept]
        newest += 1
        slots = to_device(position, engine.device)
        logits = engine.logits(engine.forward(tokens, slots, "all" if equal else slots + 1, newest))
        position = position + 1
