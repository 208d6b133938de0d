"""One pass of the model over chosen slots of the cache. The only place that calls the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbd.cache import SlotCache
from sbd.decoding.attend import Ragged
from sbd.decoding.fixed import FixedPasses
from sbd.decoding.forward import DirectForward, is_supported
from sbd.errors import UserError

_PACK_BELOW = 0.9
"""Share of needed queries below which leaving out the others pays."""
_PICK_ABOVE = 8192
"""Logits that must be spared for it to pay that open slots are taken out of their blocks."""


class Engine:
    """A causal language model of Hugging Face, its cache, and the tokens it must not generate.

    Every query of a pass sees a prefix of its row's slots (``limit``), and may also see an interval of slots of its own
    (``own``). With slot = position that covers causal tokens, blocks of masks, and groups of masks behind drafts.
    ``direct`` False calls the model's own forward even where `sbd.decoding.forward` knows its layers. ``fixed``: passes
    of fixed shapes to run all but the first pass with; the capacity is then that of their cache.
    """

    direct = True

    def __init__(
        self,
        model: PreTrainedModel,
        batch: int,
        capacity: int,
        forbidden: list[int],
        fixed: FixedPasses | None = None,
    ):
        self.model = model
        self.device = model.device
        self.fixed = fixed
        if fixed is None:
            self.cache = SlotCache(model.config, batch, capacity, model.dtype, self.device)
            self.run = DirectForward(model, self.cache) if self.direct and is_supported(model) else None
        else:
            self.cache, self.run, capacity = fixed.cache, fixed.direct, fixed.cache.capacity
        self.leaves_out = fixed is None and self.device.type == "cpu"
        """Whether passes cost what they compute, so that it pays to leave out what is not needed; a GPU keeps its few
        fixed shapes."""
        self.numbers = np.arange(batch * capacity)
        """Slots counted over all rows, to cut those of a pass from."""
        self.slots = torch.arange(capacity, device=self.device)
        self.forbidden = torch.tensor(forbidden, dtype=torch.long, device=self.device)
        self.hidden_mask = torch.tensor(-torch.inf, dtype=model.dtype, device=self.device)
        self.seen_mask = torch.tensor(0.0, dtype=model.dtype, device=self.device)
        self.vocabulary = model.config.vocab_size
        self.is_checked = False
        self.passes = 0
        self.queries = 0
        """Positions that went through the layers, of all rows, after the first pass (the prefill)."""

    def prefill(self, tokens: Tensor, behind: int = 0, lengths: Tensor | None = None) -> Tensor:
        """Hidden states [batch, query, hidden] of the first pass: prompts ``tokens`` [batch, query], causal.

        Rows shorter than the longest carry junk behind their prompt: causality keeps it from the prompt, and later
        passes overwrite it. The last ``behind`` queries, if the engine ``drafts_in_prefill``, are a group that goes on
        where a prompt ends, after ``lengths`` [batch, 1]; it sees its prompt and itself.
        """
        batch, count = tokens.shape
        slots = self.slots[:count].expand(batch, -1)
        self.passes += 1
        self.cache.place(slots, count)
        if self.run is None:
            return self._theirs(tokens, slots, None)  # without a mask it takes a pass for causal
        if lengths is None:
            return self.call(self.run, tokens, slots, None, count)
        width = count - behind
        in_group = slots >= width
        positions = torch.where(in_group, lengths + slots - width, slots)
        mask = self._added(((slots < lengths) | in_group)[:, None, None])
        return self.call(self.run, tokens, positions, mask, width)

    @property
    def drafts_in_prefill(self) -> bool:
        """Whether a group may lie behind prompts; the model's own forward would need a mask of their length squared."""
        return self.run is not None

    def forward(
        self,
        tokens: Tensor,
        slots: Tensor,
        limit: Tensor | Literal["all"],
        view: int,
        positions: Tensor | None = None,
        own: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Hidden states [batch, query, hidden] of a pass behind the first.

        tokens, slots, limit: [batch, query]; query i attends to the slots below limit i, or all of a row to those below
        one limit [batch, 1]; "all" is for queries that see the whole view. ``view`` bounds the slots that any query of
        interest attends to. ``positions`` default to the slots. ``own`` = (low, high), each [batch, query]: slots low
        <= j < high are attended to as well.
        """
        positions = slots if positions is None else positions
        self.passes += 1
        self.queries += tokens.numel()
        if self.fixed is not None:
            limits = limit if isinstance(limit, Tensor) else torch.full_like(slots, view)
            limits = limits.expand(slots.shape)
            none = torch.zeros_like(slots)
            interval = (none, none) if own is None else own
            return self.call(self.fixed.run, tokens, slots, positions, limits, *interval)
        mask = lengths = None
        if isinstance(limit, Tensor) and limit.shape[1] == 1 and own is None and self.run and self.run.flash:
            lengths = limit[:, 0].clamp(max=view)  # a row that is done may lie beyond what is looked at
        elif isinstance(limit, Tensor):
            mask = self._seen(limit, own, view)
        self.cache.place(slots, view)
        if self.run is not None:
            added = None if mask is None else self._added(mask)
            return self.call(self.run, tokens, positions, added, lengths=lengths)
        if mask is None and slots.shape[1] > 1:  # without a mask it would take a pass for causal
            mask = torch.ones((1, 1, 1, view), dtype=torch.bool, device=self.device)
        return self._theirs(tokens, positions, None if mask is None else mask.expand(-1, -1, slots.shape[1], -1))

    def _theirs(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """The model's own forward."""
        return self.call(
            self.model.model,
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            cache=self.cache,
            use_cache=True,
        ).last_hidden_state

    def line(
        self,
        tokens: Tensor,
        positions: Tensor,
        places: Tensor,
        limit: Tensor,
        widths: list[int],
        view: int,
        own: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Hidden states [queries, hidden] of a pass whose rows differ in width, if ``packs`` says so.

        The same as ``forward`` with all queries in one line, row after row, ``widths`` of each; each tensor [queries].
        places: where they are stored in the cache, slots being counted over all rows.
        """
        assert self.run is not None
        self.passes += 1
        self.queries += len(tokens)
        self.cache.place_line(places, len(widths), view)
        ragged = Ragged(widths, self.run.heads, view, self.model.dtype)
        interval = None if own is None else (ragged.grouped(own[0]), ragged.grouped(own[1]))
        mask = self._added(self._seen(ragged.grouped(limit), interval, view))
        return self.call(self.run.line, tokens, positions, mask, ragged)

    def places(self, slots: np.ndarray, widths: Sequence[int]) -> np.ndarray:
        """Those of ``line`` where its queries go to ``slots`` [queries] of their rows."""
        return slots + np.repeat(np.arange(len(widths)) * self.cache.capacity, widths)

    def _seen(self, limit: Tensor, own: tuple[Tensor, Tensor] | None, view: int) -> Tensor:
        """Which of the first ``view`` slots are attended to: bool [batch, 1, query or 1, view]."""
        keys = self.slots[:view]
        seen = keys < limit[..., None]
        if own is not None:
            seen |= (keys >= own[0][..., None]) & (keys < own[1][..., None])
        return seen[:, None]

    def _added(self, seen: Tensor) -> Tensor:
        """What is added to the scores; a boolean mask would be turned into this once per layer."""
        return torch.where(seen, self.seen_mask, self.hidden_mask)

    def call(self, part: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        """Run a part of the model, its layers or its LM head. All calls come through here, where they can be timed."""
        return part(*inputs, **named)

    def width(self, count: int, size: int) -> int:
        """Queries of a row of which ``count`` are needed: where shapes are fixed, a multiple of ``size``."""
        return count if self.fixed is None else -(-count // size) * size

    def leave_done(self, is_running: Sequence[bool]) -> list[int] | None:
        """The batch goes on without the rows that are done, if it ``leaves_out`` anything.

        Gives the places of the others in the order in which later passes, and ``is_running``, have them; None if
        nothing changes.
        """
        if all(is_running) or not self.leaves_out:
            return None
        kept = list(range(len(is_running)))
        for place in reversed(range(len(is_running))):
            if not is_running[place]:
                self.check(place)
                last = kept.pop()
                if place < len(kept):
                    kept[place] = last
                    self.cache.move(len(kept), place)
        return kept

    def packs(self, widths: Sequence[int], width: int) -> bool:
        """Whether a pass of ``width``, of which ``widths`` queries of each row are needed, leaves out the others."""
        few = sum(widths)
        return self.leaves_out and self.run is not None and 0 < few <= _PACK_BELOW * len(widths) * width

    def picks(self, few: int, every: int) -> bool:
        """Whether ``few`` of ``every`` state go through the LM head alone."""
        return self.leaves_out and few > 0 and (every - few) * self.vocabulary > _PICK_ABOVE

    def logits(self, hidden: Tensor, rows: Tensor | None = None) -> Tensor:
        """Logits [batch, n, vocab] of the query rows ``rows`` [batch, n] of ``hidden``; forbidden tokens are -inf.

        ``rows`` None takes all of ``hidden`` [batch, n, hidden]. Raises UserError if the first logits are not finite.
        """
        if rows is not None:
            hidden = hidden.gather(1, rows[..., None].expand(-1, -1, hidden.shape[-1]))
        logits = self.call(self.model.lm_head, hidden)
        if not self.is_checked:
            self.is_checked = True
            self._require_finite(logits)
        return logits.index_fill_(-1, self.forbidden, -torch.inf)

    def check(self, place: int | None = None) -> None:
        """UserError if a pass so far left NaN or infinity in the cache, where it spoils every later one of its row.

        place: that of a row; all by default.
        """
        stored = self.cache.slot_layers[-1].stored_values
        self._require_finite(stored if place is None else stored[place, : self.cache.view])

    def _require_finite(self, values: Tensor) -> None:
        low, high = values.aminmax()
        if not bool((low > -torch.inf) & (high < torch.inf)):  # NaN, which both then are, fails the comparison
            raise UserError(
                f"the model gives NaN or infinity in {self.model.dtype}: its weights hold it, or its numbers overflow; "
                "try another checkpoint, or float32"
            )
