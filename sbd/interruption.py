"""Signals that ask a long job to save and leave: SIGTERM (Slurm cancels or preempts) and SIGUSR1 (a warning before)."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

STOPPED = 75
"""Exit status of a step that was asked to stop and saved what it had: EX_TEMPFAIL, "run the same command again"."""


class Stopped(Exception):
    """A step was asked to stop; its state is saved and the same command goes on from it."""


class StopRequest:
    """Remembers the first SIGTERM or SIGUSR1 within a ``with`` block; ``signal`` is its number, or 0."""

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in self.SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number
