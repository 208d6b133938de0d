"""Passes of fixed shapes over memory that stays where it is, so that they can be compiled or replayed as CUDA graphs.

Decoding has few shapes of passes: 1 token per row; k and 2k; a tree of drafts and masks. Each gets buffers for its
inputs and always attends over the whole cache, what is not in view being hidden. The first pass of a decode, over
prompts of any length, is not among them. Buffers, cache and what was compiled or captured are kept with the model for
the next calls of the same batch and cache length, of a few of these at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbd.cache import SlotCache
from sbd.decoding.forward import DirectForward, is_supported
from sbd.errors import UserError

Execution = Literal["eager", "compile", "graphs"]
EXECUTIONS = ("eager", "compile", "graphs")

_ROUND = 64
"""Cache lengths are rounded up to a multiple of this, so that prompts of similar length share what was compiled."""

Body = Callable[..., Tensor]
Capture = Callable[[Body, tuple[Tensor, ...]], Callable[[], Tensor]]


class FixedPasses:
    """The passes of one batch size and cache length; ``run`` copies the inputs in and gives the hidden states.

    What ``run`` returns is overwritten by the next pass of the same width.
    """

    def __init__(self, model: PreTrainedModel, batch: int, capacity: int, execution: Execution):
        self.cache = SlotCache(model.config, batch, capacity, model.dtype, model.device)
        self.direct = DirectForward(model, self.cache)
        self.capture: Capture = _graph if execution == "graphs" else _compiled
        self.keys = torch.arange(capacity, device=model.device)
        self.seen = torch.tensor(0.0, dtype=model.dtype, device=model.device)
        self.hidden = torch.tensor(-torch.inf, dtype=model.dtype, device=model.device)
        self._passes: dict[int, tuple[tuple[Tensor, ...], Callable[[], Tensor]]] = {}

    def run(self, *inputs: Tensor) -> Tensor:
        """Tokens, slots, positions, limit, low, high, each [batch, query] -> hidden states [batch, query, hidden]."""
        width = inputs[0].shape[1]
        if width not in self._passes:
            buffers = tuple(value.clone() for value in inputs)
            self._passes[width] = buffers, self.capture(self._body, buffers)
        buffers, replay = self._passes[width]
        for buffer, value in zip(buffers, inputs, strict=True):
            buffer.copy_(value)
        return replay()

    def _body(
        self, tokens: Tensor, slots: Tensor, positions: Tensor, limit: Tensor, low: Tensor, high: Tensor
    ) -> Tensor:
        self.cache.place(slots, self.cache.capacity)
        mask = (self.keys < limit[..., None]) | ((self.keys >= low[..., None]) & (self.keys < high[..., None]))
        return self.direct(tokens, positions, torch.where(mask, self.seen, self.hidden)[:, None])


def _compiled(body: Body, buffers: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    # One compilation for each model, batch, cache length and width; torch would stop at eight.
    limits: Any = torch._dynamo.config
    limits.recompile_limit = max(64, limits.recompile_limit)
    compiled = torch.compile(body, dynamic=False)
    return lambda: compiled(*buffers)


def _graph(body: Body, buffers: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    """Capture one pass. It runs a few times before, on the first inputs: a pass may be repeated without harm."""
    with torch.cuda.device(buffers[0].device):  # streams are of the current one
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                body(*buffers)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = body(*buffers)

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay


_KEPT = 4
"""Passes kept with a model, the last used ones: decoders and batch sizes may alternate. Each holds a cache."""

_kept: WeakKeyDictionary[PreTrainedModel, dict[tuple, FixedPasses]] = WeakKeyDictionary()


def check(model: PreTrainedModel, execution: str) -> None:
    """Raise UserError where passes of this model cannot be executed so."""
    if execution not in EXECUTIONS:
        raise UserError(f"execution must be one of {', '.join(EXECUTIONS)}, not {execution!r}")
    if execution == "graphs" and model.device.type != "cuda":
        raise UserError(
            f"CUDA graphs need a model on a GPU, this one is on {model.device.type}; use 'compile' or 'eager'"
        )
    if execution != "eager" and not is_supported(model):
        raise UserError(
            f"execution={execution!r} is for plain Llama and Qwen3 models, not {type(model).__name__} or a changed "
            "one; use 'eager'"
        )


def rounded(capacity: int) -> int:
    """Slots of a cache of fixed passes that must hold ``capacity``, so that calls of nearly equal length share one."""
    return -(-capacity // _ROUND) * _ROUND


def take(model: PreTrainedModel, batch: int, capacity: int, execution: Execution) -> tuple[tuple, FixedPasses]:
    """The passes kept with the model if they fit, else new ones; hand them back with ``keep``.

    They are the caller's alone meanwhile, so that a callback may decode with the same model.
    """
    capacity = rounded(capacity)
    # A captured pass reads weights where they lay.
    weights = tuple(parameter.data_ptr() for parameter in model.parameters())
    kept = _kept.setdefault(model, {})
    for key in [key for key in kept if key[0] != weights]:
        del kept[key]
    key = (weights, batch, capacity, execution)
    passes = kept.pop(key, None)
    if passes is None:
        _make_room(kept)
        passes = FixedPasses(model, batch, capacity, execution)
    return key, passes


def keep(model: PreTrainedModel, passes: tuple[tuple, FixedPasses]) -> None:
    """Leave passes for the next call with this model; those that were not used for longest give way."""
    kept = _kept.setdefault(model, {})
    kept.pop(passes[0], None)  # what a callback may have left meanwhile
    _make_room(kept)
    kept[passes[0]] = passes[1]


def _make_room(kept: dict[tuple, FixedPasses]) -> None:
    """For one more; a dict keeps the order of insertion."""
    while len(kept) >= _KEPT:
        del kept[next(iter(kept))]
