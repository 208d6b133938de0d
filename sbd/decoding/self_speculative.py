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

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows, most_likely, to_device
from sbd.decoding.settings import SelfSpeculative
from sbd.samplers import entropies, token_probabilities

_Token = tuple[int, float | None]
"""A token and its entropy, if that is recorded."""


@dataclass(slots=True)
class _Draft:
    """What the next pass verifies of a row: candidates behind its ``length`` committed tokens.

    ``tokens``: the first one is certain; none if the row is done. ``chance``: the probability that the model gives
    each. ``after``: the numbers of accepted candidates that the pass lays a group of masks behind.
    """

    row: int
    length: int
    tokens: list[int] = field(default_factory=list)
    chance: list[float] = field(default_factory=list)
    after: tuple[int, ...] = ()


def decode(engine: Engine, rows: Rows, settings: SelfSpeculative) -> None:
    """Until every row is done: verify the drafts and draft behind what may be accepted."""
    k = settings.block_size
    drafts = _prefill(engine, rows, k)
    while any(rows.is_running):
        kept = engine.leave_done([rows.is_running[draft.row] for draft in drafts])
        if kept is not None:
            drafts = [drafts[place] for place in kept]
        if k > 1:  # else there is nothing to draft behind the certain token
            for draft in drafts:
                draft.after = _likeliest(draft.chance, settings.branches)
        hidden, starts, groups = _pass(engine, rows, drafts, k)
        rows.pass_number += 1

        laid = []
        for draft, group, verdict in zip(drafts, groups, _verify(engine, rows, drafts, hidden, starts), strict=True):
            if draft.tokens:
                accepted = _accept(rows, draft, verdict)
                if draft.tokens and accepted in draft.after:
                    laid.append((draft, group + draft.after.index(accepted) * k))
        _draft(engine, rows, hidden, laid, k)


def _prefill(engine: Engine, rows: Rows, k: int) -> list[_Draft]:
    """The prompts, causal, with a first group of masks behind each; reveals the first token."""
    start, width, device = rows.start, max(rows.request.lengths), engine.device
    is_grouped = k > 1 and engine.drafts_in_prefill
    if is_grouped:  # behind a prompt the sequence has masks only
        tokens = to_device(rows.sequence[:, : width + k], device)
        hidden = engine.prefill(tokens, k, to_device(start, device))
    else:
        hidden = prefill(engine, rows)
    rows.pass_number += 1
    logits = engine.logits(hidden, to_device(start - 1, device))
    # What a pass reveals starts behind the token that is certain: here the last one of the prompt.
    drafts = [_Draft(row, length - 1) for row, length in enumerate(rows.request.lengths)]
    found = _on_host(rows, logits, rows.choose(logits, start, range(rows.batch)))
    for draft, of_row in zip(drafts, found, strict=True):
        _accept(rows, draft, [of_row])
    if is_grouped:
        laid = [(draft, draft.row * (width + k) + width) for draft in drafts if draft.tokens]
        _draft(engine, rows, hidden.flatten(0, 1), laid, k)
    return drafts


def _pass(engine: Engine, rows: Rows, drafts: Sequence[_Draft], k: int) -> tuple[Tensor, list[int], list[int]]:
    """Hidden states [queries, hidden] of candidates and groups, and where those of each row start."""
    needed = [len(draft.tokens) + len(draft.after) * k for draft in drafts]
    width = max(len(draft.tokens) for draft in drafts)
    whole = width + max(len(draft.after) for draft in drafts) * k
    is_ragged = engine.packs(needed, whole)
    counts = [len(draft.tokens) if is_ragged else width for draft in drafts]
    sizes = needed if is_ragged else [whole] * len(drafts)
    tokens = np.full(sum(sizes), rows.request.mask_token)
    starts, groups, trees = [], [], []
    start = view = 0
    for draft, count, size in zip(drafts, counts, sizes, strict=True):
        tokens[start : start + len(draft.tokens)] = draft.tokens
        trees.append(_tree(count, draft.after, size, k) + draft.length)
        if draft.tokens:
            view = max(view, draft.length + size)
        starts.append(start)
        groups.append(start + count)
        start += size
    if not is_ragged:
        of_rows = trees[0][:, None] if len(trees) == 1 else np.stack(trees, 1)
        return _forward(engine, of_rows, tokens.reshape(-1, whole), view).flatten(0, 1), starts, groups
    line = np.concatenate(trees, 1)
    line[0] = engine.places(line[0], sizes)
    places, positions, limit, low, high = torch.from_numpy(line)
    return engine.line(torch.from_numpy(tokens), positions, places, limit, sizes, view, (low, high)), starts, groups


def _verify(
    engine: Engine, rows: Rows, drafts: Sequence[_Draft], hidden: Tensor, starts: Sequence[int]
) -> list[list[_Token]]:
    """What the next-token prediction says behind each candidate."""
    counts = [len(draft.tokens) for draft in drafts]
    queries = [start + n for start, count in zip(starts, counts, strict=True) for n in range(count)]
    logits = engine.logits(_states(hidden, queries)[:, None])
    if rows.request.sampling.greedy:
        chosen = most_likely(logits)
    else:
        targets = [(draft.length + 1 + n, draft.row) for draft in drafts for n in range(len(draft.tokens))]
        chosen = rows.choose(logits, [[position] for position, _ in targets], [row for _, row in targets])
    found = _on_host(rows, logits, chosen)
    ends = accumulate(counts)
    return [found[end - count : end] for count, end in zip(counts, ends, strict=True)]


def _on_host(rows: Rows, logits: Tensor, chosen: Tensor) -> list[_Token]:
    """The tokens ``chosen`` from ``logits``, in one line, with their entropies if these are recorded."""
    if rows.entropy is None:
        return [(token, None) for token in chosen.flatten().tolist()]
    entropy = entropies(logits)  # under way before a GPU is waited for
    return list(zip(chosen.flatten().tolist(), entropy.flatten().tolist(), strict=True))


def _accept(rows: Rows, draft: _Draft, verdict: Sequence[_Token]) -> int:
    """Reveal the prediction behind each accepted candidate; the last one is the next certain token.

    Returns how many candidates are accepted: the certain one, and those behind it that were predicted. Of a row that is
    done the draft is left empty.
    """
    accepted = 1
    while accepted < len(verdict) and draft.tokens[accepted] == verdict[accepted - 1][0]:
        accepted += 1
    for token, entropy in verdict[:accepted]:
        draft.length += 1
        rows.reveal(draft.row, draft.length, token, entropy)
    rows.advance(draft.row, draft.length + 1)
    goes_on = rows.is_running[draft.row]
    draft.tokens, draft.chance = ([verdict[accepted - 1][0]], [1.0]) if goes_on else ([], [])
    return accepted


@lru_cache(maxsize=1024)
def _tree(count: int, after: tuple[int, ...], size: int, k: int) -> np.ndarray:
    """Slots, positions, limits and own intervals [5, size] of ``count`` candidates and groups of k masks behind them.

    All counted from the committed length of a row. What is left of ``size`` is junk.
    """
    slots = np.arange(size)
    positions, limit, low, high = np.minimum(slots, count - 1), np.minimum(slots + 1, count), slots * 0, slots * 0
    for start, accepted in zip(range(count, size, k), after, strict=False):
        group = slice(start, start + k)
        positions[group], limit[group] = accepted + np.arange(k), accepted
        low[group], high[group] = start, start + k
    return np.stack((slots, positions, limit, low, high))


def _forward(engine: Engine, of_queries: Sequence[np.ndarray] | np.ndarray, tokens: np.ndarray, view: int) -> Tensor:
    """``Engine.forward`` of arrays [batch, query]: tokens, and the five of ``_tree``."""
    slots, positions, limit, low, high = (to_device(values, engine.device) for values in of_queries)
    return engine.forward(to_device(tokens, engine.device), slots, limit, view, positions, (low, high))


def _states(hidden: Tensor, queries: list[int]) -> Tensor:
    """Those of ``queries``, ascending, of hidden [queries, hidden]."""
    if queries[-1] - queries[0] + 1 == len(queries):
        return hidden[queries[0] : queries[-1] + 1]
    return hidden.index_select(0, to_device(np.array(queries), hidden.device))


def _draft(engine: Engine, rows: Rows, hidden: Tensor, laid: Sequence[tuple[_Draft, int]], k: int) -> None:
    """Add the candidates of the groups ``laid``, each with the query of hidden [queries, hidden] that it starts at."""
    if not laid:
        return
    # The first mask of a group stands for the token that is certain by now.
    states = _states(hidden, [first + n for _, first in laid for n in range(1, k)])
    logits = engine.logits(states.view(len(laid), k - 1, -1))
    positions = [range(draft.length + 1, draft.length + k) for draft, _ in laid]
    drafted = rows.choose(logits, positions, [draft.row for draft, _ in laid])
    chance = token_probabilities(logits, drafted).tolist()
    for (draft, _), tokens, chances in zip(laid, drafted.tolist(), chance, strict=True):
        draft.tokens += tokens
        draft.chance += chances


def _likeliest(chance: Sequence[float], branches: int) -> tuple[int, ...]:
    """The ``branches`` likeliest numbers of accepted candidates, ascending; without one, 1 where nothing was drafted.

    Exactly a candidates are accepted when the first a are and the next is not.
    """
    if branches == 0:
        return (1,) if len(chance) == 1 else ()
    exactly, product = [], 1.0
    for place, of_place in enumerate(chance):
        product *= of_place
        exactly.append(product * (1 - chance[place + 1]) if place + 1 < len(chance) else product)
    order = sorted(range(len(chance)), key=exactly.__getitem__, reverse=True)
    return tuple(sorted(place + 1 for place in order[:branches]))
