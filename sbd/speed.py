"""Wall-clock of decoders, measured side by side: what passes cost, what they gain, and what equation 16 says they
should.

All decoders run in one process, in turn, several times over, with passes of fixed widths between them, so that a slow
moment of the machine strikes all of them; the medians are reported. On a machine that does other things beside it, time
can be counted as that of the processor ("cpu"), for one thread. Baselines are what a user would pick instead:
`generate` of Hugging Face, greedy and with prompt lookup.
"""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from sbd.decoding import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.decoding.engine import Engine
from sbd.decoding.fixed import Execution, FixedPasses
from sbd.device import device_name
from sbd.errors import UserError
from sbd.files import write_text

Clock = Literal["wall", "cpu"]

_REFERENCE = "autoregressive"


def predicted_gain(forwards_per_block: float, k: int, time_1: float, time_k: float, time_2k: float) -> float:
    """Equation 16: k time(1) / (time(2k) + (l - 1) time(k)) for l forward passes per block of k tokens."""
    return k * time_1 / (time_2k + (forwards_per_block - 1) * time_k)


def _one_pass(
    model: PreTrainedModel, batch: int, width: int, context: int, head_rows: int, execution: Execution = "eager"
) -> Callable[[], object]:
    """A pass of ``width`` queries per row behind ``context`` tokens, and the logits of ``head_rows`` of them.

    ``head_rows`` is k of 2k in a pass that commits a block.
    """
    device = model.device
    with torch.inference_mode():
        fixed = None if execution == "eager" else FixedPasses(model, batch, context + width, execution)
        engine = Engine(model, batch, context + width, [], fixed)
        slots = torch.arange(width, device=device).expand(batch, -1) + context
        tokens = torch.full_like(slots, 1)
        rows = torch.arange(head_rows, device=device).expand(batch, -1)

    def once() -> object:
        limit = "all" if batch == 1 else slots + 1
        return engine.logits(engine.forward(tokens, slots, limit, context + width), rows)

    return once


def measure(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    decoders: Mapping[str, Decoder],
    batch_sizes: Sequence[int] = (1, 8),
    max_new_tokens: int = 128,
    eos_token_id: int | Sequence[int] | None = None,
    repeats: int = 3,
    hugging_face: bool = True,
    clock: Clock = "wall",
    execution: Execution = "eager",
) -> list[dict[str, Any]]:
    """One row for each batch size and decoder, our autoregressive loop first, and the baselines of Hugging Face.

    ``prompts`` are token ids; each batch size decodes all of them, in batches. Every contender is warmed up once. The
    prompt lookup of Hugging Face is measured at batch 1 only, since it knows no other.
    Columns: see ``_row``. Times per pass are in milliseconds, empty where a column does not apply.
    """
    if clock == "cpu" and (model.device.type != "cpu" or torch.get_num_threads() > 1):
        raise UserError(
            "the processor's clock is for one thread on a CPU; measure with --threads 1, or by the wall clock"
        )
    if not prompts:
        raise UserError("speed needs at least one prompt")
    if repeats < 1 or any(size < 1 for size in batch_sizes):
        raise UserError("speed needs repeats and batch sizes of 1 or more")
    contenders = {_REFERENCE: Autoregressive(), **decoders}
    rows = []
    for size in batch_sizes:
        batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        runs: dict[str, Callable[[], _Counts]] = {
            name: _ours(model, batches, decoder, max_new_tokens, eos_token_id, execution)
            for name, decoder in contenders.items()
        }
        if hugging_face:
            runs["hf_generate"] = _theirs(model, batches, max_new_tokens, eos_token_id, {})
            if size == 1:
                lookup = {"prompt_lookup_num_tokens": 10}
                runs["hf_prompt_lookup"] = _theirs(model, batches, max_new_tokens, eos_token_id, lookup)
        counts = {name: run() for name, run in runs.items()}  # also the warm-up
        context = round(statistics.mean(map(len, prompts)) + counts[_REFERENCE].tokens / len(prompts) / 2)
        blocks = {_block(decoder) for decoder in contenders.values() if not isinstance(decoder, Autoregressive)}
        shapes = {(1, 1)} | {(width, k) for k in blocks for width in (k, 2 * k)}
        passes = {shape: _one_pass(model, size, shape[0], context, shape[1], execution) for shape in sorted(shapes)}
        with torch.inference_mode():
            for once in passes.values():
                once()  # the first pass of an engine is never captured, the second one is
                once()
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        shares: dict[str, list[float]] = {name: [] for name in contenders}
        times: dict[tuple[int, int], list[float]] = {shape: [] for shape in passes}
        for _ in range(repeats):
            for name, run in runs.items():
                seconds[name].append(_seconds(run, model.device, clock))
                if name in contenders:
                    shares[name].append(_share_outside(run, model.device, clock))
                with torch.inference_mode():
                    for shape, once in passes.items():
                        times[shape] += [_seconds(once, model.device, clock) for _ in range(3)][1:]
        cost = {shape: statistics.median(values) for shape, values in times.items()}
        reference = statistics.median(seconds[_REFERENCE]) / counts[_REFERENCE].tokens
        for name in runs:
            share = statistics.median(shares[name]) if name in contenders else None
            measured = statistics.median(seconds[name])
            decoder = contenders.get(name)
            row = _row(name, size, decoder, counts[name], measured, share, reference, cost, model, clock, execution)
            rows.append(row)
    return rows


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of ``measure`` as CSV, atomically."""
    if not rows:
        raise UserError(f"nothing was measured, so {path} is not written")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


class _Counts:
    """Tokens of all rows, passes charged to the rows, passes the model ran, and how many positions went through it."""

    def __init__(self) -> None:
        self.tokens = self.forward_passes = self.model_passes = self.queries = self.batches = 0


def _row(
    name: str,
    batch: int,
    decoder: Decoder | None,
    counts: _Counts,
    seconds: float,
    share: float | None,
    reference: float,
    times: Mapping[tuple[int, int], float],
    model: PreTrainedModel,
    clock: Clock,
    execution: Execution,
) -> dict[str, Any]:
    k = 1 if decoder is None else _block(decoder)
    per_forward = counts.tokens / counts.forward_passes
    gain = None
    if isinstance(decoder, SetBlock):
        gain = predicted_gain(k / per_forward, k, times[1, 1], times[k, k], times[2 * k, k])
    after_prefill = counts.model_passes - counts.batches
    wide = None if decoder is None or after_prefill == 0 else counts.queries / after_prefill
    return {
        "decoder": name,
        "batch": batch,
        "tokens": counts.tokens,
        "seconds": round(seconds, 6),
        "tokens_per_second": round(counts.tokens / seconds, 3),
        "tokens_per_forward": round(per_forward, 4),
        "model_passes": counts.model_passes,
        "queries_per_pass": "" if wide is None else round(wide, 2),
        "ms_per_pass": round(1e3 * seconds / counts.model_passes, 4),
        "share_outside_model": "" if share is None else round(share, 4),
        "gain_measured": round(reference / (seconds / counts.tokens), 4),
        "gain_predicted": "" if gain is None else round(gain, 4),
        "ms_pass_1": round(1e3 * times[1, 1], 4),
        "ms_pass_k": "" if decoder is None else round(1e3 * times[k, k], 4),
        "ms_pass_2k": "" if decoder is None or isinstance(decoder, Autoregressive) else round(1e3 * times[2 * k, k], 4),
        "block_size": "" if decoder is None else k,
        "device": device_name(model.device),
        "clock": clock,
        "execution": execution if decoder is not None else "eager",
        "threads": torch.get_num_threads(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "torch": torch.__version__,
    }


def _block(decoder: Decoder) -> int:
    if isinstance(decoder, Autoregressive):
        return 1
    if isinstance(decoder, SetBlock):
        return round(sum(decoder.sizes) / 2)
    assert isinstance(decoder, (LongestPrefix, SelfSpeculative))
    return decoder.block_size


def _ours(
    model: PreTrainedModel, batches: list, decoder: Decoder, max_new_tokens: int, eos: Any, execution: Execution
) -> Callable[[], _Counts]:
    def run() -> _Counts:
        counts = _Counts()
        for batch in batches:
            out = generate(model, batch, decoder, max_new_tokens, eos_token_id=eos, execution=execution)
            counts.tokens += sum(map(len, out.tokens))
            counts.forward_passes += sum(out.forward_passes)
            counts.model_passes += out.model_passes
            counts.queries += out.model_queries
            counts.batches += 1
        return counts

    return run


def _theirs(model: Any, batches: list, max_new_tokens: int, eos: Any, options: dict[str, Any]) -> Callable[[], _Counts]:
    """`generate` of Hugging Face, with the tokens suppressed that ours never gives either."""
    config = model.config
    ends = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    special = {getattr(config, "mask_token_id", None), config.pad_token_id, config.bos_token_id} - {None, *ends}
    pad = config.pad_token_id if config.pad_token_id is not None else 0

    def run() -> _Counts:
        counts = _Counts()

        def count(*_: object) -> None:
            counts.model_passes += 1

        handle = model.model.norm.register_forward_hook(count)
        try:
            for batch in batches:
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
                counts.tokens += sum(_length(row, ends) for row in out)
        finally:
            handle.remove()
        counts.forward_passes = counts.model_passes if options else counts.tokens
        return counts

    return run


def _length(tokens: list[int], ends: list[int]) -> int:
    return next((n for n, token in enumerate(tokens, 1) if token in ends), len(tokens))


def _seconds(run: Callable[[], object], device: torch.device, clock: Clock = "wall") -> float:
    now = time.perf_counter if clock == "wall" else time.process_time
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = now()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return now() - start


def _share_outside(run: Callable[[], object], device: torch.device, clock: Clock) -> float:
    """Share of the time of a run that is spent outside the layers and the LM head of the model, prefill included.

    It is what our loop costs: masks, where keys are placed, which positions to reveal, tokens to the host. With passes
    of fixed shapes, mask and placement are part of what is compiled or captured, and count as the model's. On a GPU the
    host waits for every part of a pass here, so that each gets its own time; such a run is not timed otherwise.
    """
    with _model_clock(device, clock) as inside:
        total = _seconds(run, device, clock)
    return max(0.0, 1 - inside[0] / total)


@contextmanager
def _model_clock(device: torch.device, clock: Clock) -> Iterator[list[float]]:
    """Sum up the seconds spent in ``Engine.call`` while the context is open."""
    inside, plain = [0.0], Engine.call

    def timed(engine: Engine, *inputs: Any, **named: Any) -> Any:
        result = []
        inside[0] += _seconds(lambda: result.append(plain(engine, *inputs, **named)), device, clock)
        return result[0]

    Engine.call = timed  # type: ignore[method-assign]
    try:
        yield inside
    finally:
        Engine.call = plain  # type: ignore[method-assign]
