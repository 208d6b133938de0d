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

import torch
from torch import Tensor

from sbd.decoding.autoregressive import prefill
from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows
from sbd.decoding.settings import SelfSpeculative
from sbd.samplers import entropies, token_probabilities

_LONG_PROMPT = 4096
"""From here on, the mask that a group in the prefill needs costs more than the pass it saves is worth."""


@dataclass
class _Drafts:
    """Candidates of every row: ``tokens`` [batch, k], the first one certain; the first ``count`` [batch, 1] are there.

    ``chance`` [batch, k] is the probability that the model gives each candidate, 0 behind ``count``.
    """

    tokens: Tensor
    count: Tensor
    chance: Tensor


def decode(engine: Engine, rows: Rows, settings: SelfSpeculative) -> None:
    """Until every row is done: verify the drafts and draft behind what may be accepted."""
    k = settings.block_size
    column = torch.arange(k, device=rows.start.device)
    drafts = _prefill(engine, rows, k)
    layouts: dict[tuple[int, int], _Layout] = {}
    length = rows.start
    while True:
        state = torch.cat([rows.running, drafts.count, length], 1).tolist()
        active = [row for row in state if row[0]]
        if not active:
            return
        width, undrafted = max(row[1] for row in active), int(any(row[1] == 1 for row in active))
        longest = max(row[2] for row in active)
        groups = min(settings.branches, width) or undrafted
        after = _likeliest(drafts.chance[:, :width], groups)
        # With no branches a group only serves rows that had nothing to verify, whatever the rest of the batch laid.
        lays = drafts.count == 1 if settings.branches == 0 else None
        if (width, groups) not in layouts:
            layouts[width, groups] = _Layout.of(width, groups, k, length.device)
        hidden = _pass(
            engine, rows, drafts, layouts[width, groups], width, length, after, lays, longest + width + groups * k
        )
        rows.pass_number += 1

        logits = engine.logits(hidden[:, :width])
        targets = length + 1 + column[:width]
        verdict = rows.choose(logits, targets)
        agrees = (verdict[:, :-1] == drafts.tokens[:, 1:width]) & (column[1:width] < drafts.count)
        accepted = (1 + agrees.long().cumprod(-1).sum(-1, keepdim=True)) * rows.running
        recorded = None if rows.entropy is None else entropies(logits)
        rows.reveal(targets, verdict, column[:width] < accepted, entropies=recorded)

        certain = verdict.gather(1, (accepted - 1).clamp(min=0))
        laid = after == accepted if lays is None else (after == accepted) & lays
        length = length + accepted
        rows.advance(length + 1, width=k)
        del logits  # of the candidates; those of the drafts are as large
        first = width + laid.long().argmax(-1, keepdim=True) * k if groups else None
        drafts = _draft(engine, rows, hidden, first, length, certain, laid.any(-1, keepdim=True), k)


def _prefill(engine: Engine, rows: Rows, k: int) -> _Drafts:
    """The prompts, causal, with a first group of masks behind each; reveals the first token."""
    batch, start, width = rows.batch, rows.start, max(rows.request.lengths)
    rows.pass_number = 1
    last = start - 1
    if width < _LONG_PROMPT and k > 1:
        column = torch.arange(width + k, device=start.device)
        slots = column.expand(batch, -1)
        in_group = column >= width
        tokens = rows.sequence[:, : width + k].masked_fill(in_group, rows.request.mask_token)
        positions = torch.where(in_group, start + column - width, slots)
        limit = torch.where(in_group, start, slots + 1)
        low, high = (in_group * width).expand(batch, -1), (in_group * (width + k)).expand(batch, -1)
        hidden = engine.forward(tokens, slots, limit, width + k, positions, (low, high))
        first = torch.full_like(last, width)
    else:
        hidden, first = prefill(engine, rows), None
    logits = engine.logits(hidden, last)
    certain = rows.choose(logits, start)
    recorded = None if rows.entropy is None else entropies(logits)
    rows.reveal(start, certain, rows.running, entropies=recorded)
    rows.advance(start + 1, width=1)
    return _draft(engine, rows, hidden, first, start, certain, torch.ones_like(rows.running), k)


@dataclass
class _Layout:
    """What is the same in all passes of ``width`` candidates and ``groups`` groups of k masks; each [query].

    group: 0 for candidates, and from 1 the group of a mask. place: the place within the candidates or the group.
    candidate: one more than the place of a candidate, 0 for masks. size: k for masks, 0 for candidates.
    """

    group: Tensor
    place: Tensor
    candidate: Tensor
    size: Tensor

    @classmethod
    def of(cls, width: int, groups: int, k: int, device: torch.device) -> _Layout:
        query = torch.arange(width + groups * k, device=device)
        is_mask = query >= width
        place = torch.where(is_mask, (query - width) % k, query)
        return cls(
            group=((query - width) // k + 1) * is_mask,
            place=place,
            candidate=(place + 1) * ~is_mask,
            size=k * is_mask,
        )


def _pass(
    engine: Engine,
    rows: Rows,
    drafts: _Drafts,
    layout: _Layout,
    width: int,
    length: Tensor,
    after: Tensor,
    lays: Tensor | None,
    view: int,
) -> Tensor:
    """One pass: the first ``width`` candidates, and k masks behind each number in ``after`` [batch, groups].

    lays: the rows [batch, 1] that need these masks; None for all.
    """
    # Of a candidate, how many candidates up to itself; of a mask, how many its group is laid behind.
    seen = torch.nn.functional.pad(after, (1, 0)).index_select(1, layout.group) + layout.candidate
    slots = length + torch.arange(layout.group.shape[0], device=length.device)
    low = slots - layout.place
    needed = (seen <= drafts.count) & rows.running
    if lays is not None:
        needed &= lays | (layout.candidate > 0)
    masks = slots.new_full((rows.batch, layout.group.shape[0] - width), rows.request.mask_token)
    return engine.forward(
        torch.cat([drafts.tokens[:, :width], masks], 1),
        slots=slots,
        limit=length + seen,
        view=view,
        positions=length + seen + (layout.place - layout.candidate),
        own=(low, low + layout.size),
        needed=needed,
    )


def _draft(
    engine: Engine,
    rows: Rows,
    hidden: Tensor,
    first: Tensor | None,
    length: Tensor,
    certain: Tensor,
    laid: Tensor,
    k: int,
) -> _Drafts:
    """Candidates from the group whose masks start at query ``first`` [batch, 1], where ``laid`` [batch, 1]."""
    count = torch.where(laid, k, 1) if first is not None else torch.ones_like(length)
    column = torch.arange(k, device=length.device)
    if first is None or k == 1:
        return _Drafts(certain.expand(-1, k), count, (column == 0).float().expand(rows.batch, -1))
    logits = engine.logits(hidden, first + column[1:])
    tokens = rows.choose(logits, length + column[1:])
    chance = token_probabilities(logits, tokens) * laid
    return _Drafts(torch.cat([certain, tokens], 1), count, torch.cat([torch.ones_like(certain).float(), chance], 1))


def _likeliest(chance: Tensor, groups: int) -> Tensor:
    """The ``groups`` likeliest numbers of accepted candidates, from 1: [batch, groups]; chance [batch, width].

    Exactly a candidates are accepted when the first a are and the next is not.
    """
    following = torch.nn.functional.pad(chance[:, 1:], (0, 1))
    return 1 + (chance.cumprod(-1) * (1 - following)).topk(groups, dim=-1).indices
