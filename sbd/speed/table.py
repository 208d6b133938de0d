"""Rows of a measurement: gains, times of passes, and where and how they were measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from sbd.decoding import Autoregressive, Decoder, SetBlock
from sbd.decoding.fixed import Execution
from sbd.device import device_name
from sbd.equation_16 import Passes, counted_gain, predicted_gain
from sbd.errors import UserError
from sbd.files import write_text
from sbd.speed.contenders import Counts
from sbd.speed.passes import Shape, block_of
from sbd.speed.stopwatch import Clock


@dataclass(frozen=True)
class Timed:
    """What a contender gave, and how long it took."""

    counts: Counts
    rounds: Sequence[float]
    """Seconds of each."""
    seconds: float
    """Of a round whose every batch takes its median."""
    beginning: float
    """Of them, what checks, memory and prefill took: the time of one autoregressive token of each prompt."""
    share_outside_model: float | None = None

    @property
    def decoding(self) -> float:
        """Seconds behind the prefill."""
        return max(0.0, self.seconds - self.beginning)

    @property
    def passes(self) -> int:
        """Passes behind the prefill."""
        return self.counts.model_passes - self.counts.batches

    @property
    def decoded(self) -> int:
        """Tokens behind the prefill."""
        return self.counts.tokens - self.counts.begun

    def gains(self, reference: Timed) -> tuple[float, float | None]:
        """Tokens per second over those of ``reference``: of all, and behind the prefill (None if nothing is there)."""
        whole = reference.seconds / reference.counts.tokens / (self.seconds / self.counts.tokens)
        if not (self.decoded and reference.decoded and self.decoding):
            return whole, None
        return whole, reference.decoding / reference.decoded / (self.decoding / self.decoded)


def row(
    name: str,
    batch: int,
    decoder: Decoder | None,
    timed: Timed,
    reference: Timed,
    times: Mapping[Shape, float],
    model: PreTrainedModel,
    clock: Clock,
    execution: Execution,
) -> dict[str, Any]:
    """The row of a contender at one batch size; ``decoder`` is None for what is not ours, ``times`` are seconds.

    ``gain_measured`` is what a user has of it, ``gain_decoding`` the same behind the prefill, which the equation is
    about. ``spread`` is what the slowest round took longer than the fastest, over ``seconds``. Times of passes are in
    milliseconds, and what does not apply is empty.
    """
    k, counts = 1 if decoder is None else block_of(decoder), timed.counts
    per_forward = counts.tokens / counts.forward_passes
    predicted = counted = None
    if isinstance(decoder, SetBlock) and decoder.commit == "fused" and decoder.sizes[0] == decoder.sizes[1]:
        costs = (times[batch, 1, 1], times[batch, k, k], times[batch, 2 * k, k])
        predicted = predicted_gain(k / per_forward, k, *costs)
        if reference.decoded:
            same = timed.decoded / reference.decoded  # number of tokens
            narrow = Passes(same * reference.passes, same * reference.counts.queries)
            blocks = Passes(timed.passes, counts.queries)
            counted = counted_gain(narrow, blocks, batch, k, times[1, 1, 1], *costs)
    whole, decoding = timed.gains(reference)
    decoding = None if decoder is None else decoding
    wide = None if decoder is None or timed.passes == 0 else counts.queries / timed.passes

    is_narrow = isinstance(decoder, Autoregressive)

    def number(value: float | None, digits: int = 4) -> float | str:
        return "" if value is None else round(value, digits)

    return {
        "decoder": name,
        "batch": batch,
        "tokens": counts.tokens,
        "seconds": round(timed.seconds, 6),
        "rounds": len(timed.rounds),
        "spread": round((max(timed.rounds) - min(timed.rounds)) / timed.seconds, 4),
        "seconds_decoding": number(None if decoder is None else timed.decoding, 6),
        "tokens_per_second": round(counts.tokens / timed.seconds, 3),
        "tokens_per_forward": round(per_forward, 4),
        "model_passes": counts.model_passes,
        "queries_per_pass": number(wide, 2),
        "ms_per_pass": round(1e3 * timed.seconds / counts.model_passes, 4),
        "share_outside_model": number(timed.share_outside_model),
        "gain_measured": round(whole, 4),
        "gain_decoding": number(decoding),
        "gain_predicted": number(predicted),
        "gain_counted": number(counted),
        "ms_pass_1": round(1e3 * times[batch, 1, 1], 4),
        "ms_pass_1_row": round(1e3 * times[1, 1, 1], 4),
        "ms_pass_k": number(None if decoder is None else 1e3 * times[batch, k, k]),
        "ms_pass_2k": number(None if decoder is None or is_narrow else 1e3 * times[batch, 2 * k, k]),
        "block_size": "" if decoder is None else k,
        "device": device_name(model.device),
        "clock": clock,
        "execution": execution if decoder is not None else "eager",
        "threads": torch.get_num_threads(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "torch": torch.__version__,
    }


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of ``measure`` as CSV, atomically."""
    if not rows:
        raise UserError(f"nothing was measured, so {path} is not written")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
