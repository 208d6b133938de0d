"""What a training writes down as it goes: ``metrics.jsonl``, tokens per second, MFU and the remaining time."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from sbd.attention import CLEAN, PADDING
from sbd.batching import IGNORE, Batch
from sbd.files import replacing
from sbd.roofline import B200, H100, H200, Shape
from sbd.workload import training_operations

PEAKS = {"H100": H100, "H200": H200, "B200": B200}
"""By a part of the device's name; the bf16 peak of another device is not known and its MFU not given."""


class Counts(NamedTuple):
    """Numbers of a step over all ranks: predicted tokens of both losses, clean and all tokens, attended pairs.

    stop: number of the signal that asked for a stop, or 0.
    """

    ntp: int
    block: int
    clean: int
    tokens: int
    pairs: int
    stop: int = 0

    @property
    def predicted(self) -> tuple[float, float]:
        """Of both losses."""
        return float(self.ntp), float(self.block)


def count(batch: Batch) -> list[Tensor]:
    """The first five of :class:`Counts` for one micro-batch; pairs inside a noisy block are left out."""
    document, position, start = batch.layout
    real = document != PADDING
    clean = real & (start == CLEAN)
    pairs = (torch.where(start == CLEAN, position, start) + 1)[real]
    labels = [(values != IGNORE).sum() for values in (batch.ntp_labels, batch.block_labels)]
    return [*labels, clean.sum(), real.sum(), pairs.sum()]


class Metrics:
    """Lines of ``metrics.jsonl``; on resume, lines of steps that will be trained again are dropped.

    So is a line that a crash cut off.
    """

    def __init__(self, path: Path, step: int, main: bool):
        self.path, self.main = path, main
        if main:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() and step else []
            with replacing(path) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines if _step_of(line) <= step))

    def add(self, line: dict[str, Any]) -> None:
        """Append a line."""
        if self.main:
            with open(self.path, "a", encoding="utf-8") as handle:
                handle.write(json.dumps(line) + "\n")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return math.inf


class Speed:
    """Clean tokens per second, share of the peak (MFU) and remaining time, from one line of the log to the next.

    MFU counts the operations of the model without what activation checkpointing repeats, over the bf16 peak of all
    GPUs.
    """

    def __init__(self, config: PreTrainedConfig, device: torch.device, ranks: int):
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        self.device, self.ranks = device, ranks
        self.peak = next((h.attention_peak for key, h in PEAKS.items() if key in name), None)
        self.shape = Shape.of("model", config.to_dict(), config.vocab_size)  # type: ignore[attr-defined]
        self._start()

    def _start(self) -> None:
        self.steps, self.clean, self.operations = 0, 0, 0.0
        self.started = time.perf_counter()

    def add(self, counts: Counts) -> None:
        """Count a finished step."""
        self.steps += 1
        self.clean += counts.clean
        self.operations += training_operations(self.shape, counts.tokens, counts.pairs, counts.ntp + counts.block)

    def lap(self, steps_left: int) -> dict[str, float | None]:
        """Since the last call."""
        seconds = max(time.perf_counter() - self.started, 1e-9)
        mfu = self.operations / seconds / (self.peak * self.ranks) if self.peak else None
        memory = torch.cuda.max_memory_allocated(self.device) / 2**30 if self.device.type == "cuda" else None
        found = {
            "tokens_per_second": round(self.clean / seconds, 1),
            "mfu": mfu,
            "hours_left": round(steps_left * seconds / max(self.steps, 1) / 3600, 3),
            "peak_memory_gib": memory,
        }
        self._start()
        return found


TIMES = ("seconds", "tokens_per_second", "mfu", "hours_left", "peak_memory_gib")
"""Keys of a line that differ from one run to the next of the same numbers."""


def shown(line: dict[str, Any]) -> str:
    """A line of the log as text behind the progress."""
    block = "" if line["block_loss"] is None else f", block {line['block_loss']:.3f}"
    mfu = "" if line["mfu"] is None else f", MFU {line['mfu']:.0%}"
    return f"NTP {line['ntp_loss']:.3f}{block}, {line['tokens_per_second']:,.0f} tokens/s{mfu}"
