"""Passes of fixed widths, for the times that equation 16 is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbd.decoding import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock
from sbd.decoding.engine import Engine
from sbd.decoding.fixed import Execution, FixedPasses, rounded

Shape = tuple[int, int, int]
"""Rows of a pass, positions of each that it puts through the layers, and how many of these, the last, through the LM
head: k of 2k where a pass commits a block."""


def block_of(decoder: Decoder) -> int:
    """Tokens of a block of a decoder, 1 where it has none, and the mean of a range."""
    if isinstance(decoder, Autoregressive):
        return 1
    if isinstance(decoder, SetBlock):
        return round(sum(decoder.sizes) / 2)
    assert isinstance(decoder, (LongestPrefix, SelfSpeculative))
    return decoder.block_size


def shapes_of(decoders: Iterable[Decoder], batch: int) -> list[Shape]:
    """Passes of one token, for one row and for all, and those of k and 2k for each of their block sizes."""
    blocks = {block_of(decoder) for decoder in decoders if not isinstance(decoder, Autoregressive)}
    return sorted({(1, 1, 1), (batch, 1, 1)} | {(batch, width, k) for k in blocks for width in (k, 2 * k)})


def one_pass(
    model: PreTrainedModel,
    shape: Shape,
    context: int,
    capacity: int,
    execution: Execution = "eager",
    equal: bool = False,
) -> Callable[[], object]:
    """A pass of ``shape`` behind ``context`` tokens, warmed up; to be called in inference mode.

    Masks are those of decoding: none for one row, or ``equal`` ones, whose queries see all there is, an end for each
    row of several, and one for each query where a block is committed.
    """
    device, (batch, width, head_rows) = model.device, shape
    with torch.inference_mode():
        fixed = None if execution == "eager" else FixedPasses(model, batch, rounded(capacity), execution)
        engine = Engine(model, batch, capacity, [], fixed)
        column = torch.arange(width, device=device).expand(batch, -1)
        slots = column + context
        tokens = torch.full_like(slots, 1)
        end = torch.full_like(slots[:, :1], context + width)
        limit: Tensor | Literal["all"] = "all" if batch == 1 or equal else end
        rows = None
        if head_rows < width:
            limit = torch.where(column < width - head_rows, slots + 1, end)
            rows = column[:, width - head_rows :]

        def once() -> object:
            return engine.logits(engine.forward(tokens, slots, limit, context + width), rows)

        once()
        once()  # the first pass of an engine is never captured, the second one is
    return once
