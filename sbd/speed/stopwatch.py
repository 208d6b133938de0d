"""Seconds of what runs on a device, and those of them that the model itself takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from sbd.decoding.engine import Engine
from sbd.errors import UserError

Clock = Literal["wall", "cpu"]


@dataclass(frozen=True)
class Stopwatch:
    """Times what runs on ``device`` by the wall, or by the processor ("cpu") where it does other things beside it.

    The processor's clock counts all threads, so it is for one thread on a CPU. Raises UserError.
    """

    device: torch.device
    clock: Clock = "wall"

    def __post_init__(self) -> None:
        if self.clock == "cpu" and (self.device.type != "cpu" or torch.get_num_threads() > 1):
            raise UserError(
                "the processor's clock is for one thread on a CPU; measure with --threads 1, or by the wall clock"
            )

    def seconds(self, run: Callable[[], object]) -> float:
        """What one call of ``run`` takes, all that it queues on a GPU included."""
        now = time.perf_counter if self.clock == "wall" else time.process_time
        self._settle()
        start = now()
        run()
        self._settle()
        return now() - start

    @property
    def disturbs(self) -> bool:
        """Whether a run takes longer for being looked into: on a GPU the host waits for every part of a pass then, so
        that each gets its own time. On a CPU it is two looks at the clock."""
        return self.device.type == "cuda"

    def outside_model(self, run: Callable[[], object]) -> tuple[float, float]:
        """Seconds of a run that are not spent in the layers and the LM head of the model, and those of all of it.

        They are what our loop costs: masks, where keys are placed, which positions to reveal, tokens to the host; and
        the prefill's share of it. With passes of fixed shapes, mask and placement are part of what is compiled or
        captured, and count as the model's.
        """
        with self.inside_model() as inside:
            total = self.seconds(run)
        return max(0.0, total - inside[0]), total

    @contextmanager
    def inside_model(self) -> Iterator[list[float]]:
        """Sum up the seconds spent in ``Engine.call`` while the context is open."""
        inside, plain = [0.0], Engine.call

        def timed(engine: Engine, *inputs: Any, **named: Any) -> Any:
            result = []
            inside[0] += self.seconds(lambda: result.append(plain(engine, *inputs, **named)))
            return result[0]

        Engine.call = timed  # type: ignore[method-assign]
        try:
            yield inside
        finally:
            Engine.call = plain  # type: ignore[method-assign]

    def _settle(self) -> None:
        """Wait for what is queued on a GPU."""
        if self.disturbs:
            torch.cuda.synchronize(self.device)
