"""What takes part in a measurement: our decoders, and `generate` of Hugging Face, which a user would pick instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from transformers import PreTrainedModel

from sbd.decoding import Decoder, generate
from sbd.decoding.fixed import Execution


@dataclass
class Counts:
    """What the batches of a contender came to."""

    tokens: int = 0
    """Of all rows."""
    forward_passes: int = 0
    """Charged to the rows: each is charged to its own end."""
    model_passes: int = 0
    """That the model ran: a row that ended waits for the others of its batch."""
    queries: int = 0
    """Positions that went through the layers."""
    batches: int = 0
    begun: int = 0
    """Tokens that came with the prefill: those of the decoders that count it as a pass."""

    @classmethod
    def of(cls, parts: Iterable[Counts]) -> Counts:
        """The sum of ``parts``."""
        whole = cls()
        for part in parts:
            for field in fields(cls):
                setattr(whole, field.name, getattr(whole, field.name) + getattr(part, field.name))
        return whole


Run = Callable[[list[Sequence[int]]], Counts]
"""Decodes one batch of prompts."""


def ours(model: PreTrainedModel, decoder: Decoder, max_new_tokens: int, eos: Any, execution: Execution) -> Run:
    """`sbd.generate` with a decoder."""

    def run(batch: list[Sequence[int]]) -> Counts:
        out = generate(model, batch, decoder, max_new_tokens, eos_token_id=eos, execution=execution)
        tokens = sum(map(len, out.tokens))
        return Counts(
            tokens=tokens,
            forward_passes=sum(out.forward_passes),
            model_passes=out.model_passes,
            queries=out.model_queries,
            batches=1,
            begun=0 if out.prefill_passes[0] else len(out.tokens),
        )

    return run


def theirs(model: Any, max_new_tokens: int, eos: Any, **options: Any) -> Run:
    """`generate` of Hugging Face, greedy, with the tokens suppressed that ours never gives either."""
    config = model.config
    ends = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    special = {getattr(config, "mask_token_id", None), config.pad_token_id, config.bos_token_id} - {None, *ends}
    pad = config.pad_token_id if config.pad_token_id is not None else 0

    def run(batch: list[Sequence[int]]) -> Counts:
        counts = Counts()

        def count(*_: object) -> None:
            counts.model_passes += 1

        handle = model.model.norm.register_forward_hook(count)
        try:
            width = max(map(len, batch))
            ids = torch.tensor([[pad] * (width - len(row)) + list(row) for row in batch], device=model.device)
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in batch], device=model.device)
            out = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=max_new_tokens,
                do_sample=False,
                eos_token_id=ends or None,
                pad_token_id=pad,
                suppress_tokens=sorted(special) or None,
                **options,
            )[:, width:].tolist()
        finally:
            handle.remove()
        counts.tokens = sum(_length(row, ends) for row in out)
        counts.forward_passes = counts.model_passes if options else counts.tokens
        return counts

    return run


def _length(tokens: list[int], ends: list[int]) -> int:
    return next((n for n, token in enumerate(tokens, 1) if token in ends), len(tokens))
