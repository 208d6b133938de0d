"""Wall-clock of decoders, measured side by side: what passes cost, what they gain, and what equation 16 says they
should.

All decoders run in one process, in turn for each batch of prompts, with passes of fixed widths between them, so that a
slow moment of the machine strikes all of them; the medians of several rounds are reported. On a machine that does other
things beside it, time can be counted as that of the processor ("cpu"), for one thread. Baselines are what a user would
pick instead: `generate` of Hugging Face, greedy and with prompt lookup.
"""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbd.decoding import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock, generate
from sbd.decoding.engine import Engine
from sbd.decoding.fixed import Execution, FixedPasses, rounded
from sbd.device import device_name
from sbd.errors import UserError
from sbd.files import write_text

Clock = Literal["wall", "cpu"]

_REFERENCE = "autoregressive"
_SAMPLES = 8
"""Passes of each width that are timed in a round, at the least."""
_Run = Callable[[list[Sequence[int]]], "_Counts"]
"""Decodes one batch of prompts."""


def predicted_gain(forwards_per_block: float, k: int, time_1: float, time_k: float, time_2k: float) -> float:
    """Equation 16: k time(1) / (time(2k) + (l - 1) time(k)) for l forward passes per block of k tokens."""
    return k * time_1 / (time_2k + (forwards_per_block - 1) * time_k)


def counted_gain(
    reference_passes: float,
    passes: float,
    queries: float,
    full: int,
    time_1: float,
    time_k: float,
    time_2k: float,
) -> float:
    """Equation 16 with counted passes in place of l passes a block of which one commits.

    In a batch rows start blocks at different times, and a pass is as wide as the rows that commit in it make it. Both
    decoders give the same number of tokens: the autoregressive one in ``reference_passes``, the other in ``passes``, in
    which ``queries`` positions go through the layers. A pass of ``full`` positions (k of every row) costs ``time_k``,
    one of twice as many ``time_2k``, and one of another width what lies on the line through these two.
    """
    return reference_passes * time_1 / (passes * time_k + (queries / full - passes) * (time_2k - time_k))


def _one_pass(
    model: PreTrainedModel,
    batch: int,
    width: int,
    context: int,
    head_rows: int,
    capacity: int,
    execution: Execution = "eager",
) -> Callable[[], object]:
    """A pass of ``width`` queries per row behind ``context`` tokens, and the logits of the last ``head_rows`` of them.

    ``head_rows`` is k of 2k in a pass that commits a block. Masks are those of decoding: none for one row, whose
    queries see all there is, an end for each row of several, and one for each query where a block is committed.
    """
    device = model.device
    with torch.inference_mode():
        fixed = None if execution == "eager" else FixedPasses(model, batch, rounded(capacity), execution)
        engine = Engine(model, batch, capacity, [], fixed)
        column = torch.arange(width, device=device).expand(batch, -1)
        slots = column + context
        tokens = torch.full_like(slots, 1)
        end = torch.full_like(slots[:, :1], context + width)
        limit: Tensor | Literal["all"] = "all" if batch == 1 else end
        rows = None
        if head_rows < width:
            limit = torch.where(column < width - head_rows, slots + 1, end)
            rows = column[:, width - head_rows :]

    def once() -> object:
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
    in_step: bool = False,
) -> list[dict[str, Any]]:
    """One row for each batch size and decoder, our autoregressive loop first, and the baselines of Hugging Face.

    The equation is about passes behind the prompt, so ``gain_decoding`` stands beside it: there the time of one
    autoregressive token, which is that of checks, memory and prefill, is taken off each decoder's time (and the tokens
    that the prefill itself gives off their number). ``gain_measured`` is what a user has of it, all included.

    ``prompts`` are token ids; each batch size decodes all of them, in batches. Every contender is warmed up once. The
    prompt lookup of Hugging Face is measured at batch 1 only, since it knows no other. ``in_step``: each prompt is a
    batch of its own, of as many equal rows. These start and end their blocks together, which equation 16 takes for
    granted of a batch; rows of different prompts do not, and wait for each other, in any decoder.
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
    for size in batch_sizes:
        if len(prompts) % size and not in_step:  # pass times are those of full batches
            raise UserError(
                f"{len(prompts)} prompts do not fill batches of {size}; measure a multiple of every batch size "
                "(--problems, --batch-size)"
            )
    rows = []
    for size in batch_sizes:
        if in_step:
            batches = [[prompt] * size for prompt in prompts]
        else:
            batches = [list(prompts[start : start + size]) for start in range(0, len(prompts), size)]
        runs: dict[str, _Run] = {
            name: _ours(model, decoder, max_new_tokens, eos_token_id, execution) for name, decoder in contenders.items()
        }
        if hugging_face:
            runs["hf_generate"] = _theirs(model, max_new_tokens, eos_token_id, {})
            if size == 1:
                lookup = {"prompt_lookup_num_tokens": 10}
                runs["hf_prompt_lookup"] = _theirs(model, max_new_tokens, eos_token_id, lookup)
        counts = {name: _Counts.of(map(run, batches)) for name, run in runs.items()}  # also the warm-up
        begin = _ours(model, contenders[_REFERENCE], 1, eos_token_id, execution)
        context = round(statistics.mean(map(len, prompts)) + counts[_REFERENCE].tokens / sum(map(len, batches)) / 2)
        blocks = {_block(decoder) for decoder in contenders.values() if not isinstance(decoder, Autoregressive)}
        shapes = {(1, 1)} | {(width, k) for k in blocks for width in (k, 2 * k)}
        capacity = max(map(len, prompts)) + max_new_tokens + max(width for width, _ in shapes)
        passes = {
            shape: _one_pass(model, size, shape[0], context, shape[1], capacity, execution) for shape in sorted(shapes)
        }
        with torch.inference_mode():
            for once in passes.values():
                once()  # the first pass of an engine is never captured, the second one is
                once()
        samples = max(2, _SAMPLES // len(batches))
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        beginnings: list[float] = []
        shares: dict[str, list[float]] = {name: [] for name in contenders}
        times: dict[tuple[int, int], list[float]] = {shape: [] for shape in passes}
        for _ in range(repeats):
            beginnings.append(0)
            once_each: dict[tuple[int, int], list[float]] = {shape: [] for shape in passes}
            watched: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
            for values in seconds.values():
                values.append(0)
            for batch in batches:
                beginnings[-1] += _seconds(partial(begin, batch), model.device, clock)
                for name, run in runs.items():
                    seconds[name][-1] += _seconds(partial(run, batch), model.device, clock)
                for name in contenders:
                    watched[name].append(_outside_model(partial(runs[name], batch), model.device, clock))
                with torch.inference_mode():
                    for shape, once in passes.items():
                        once()  # the first of several is slower
                        once_each[shape] += [_seconds(once, model.device, clock) for _ in range(samples)]
            for shape, values in once_each.items():
                times[shape].append(statistics.mean(values))
            for name, parts in watched.items():
                outside, whole = map(sum, zip(*parts, strict=True))
                shares[name].append(outside / whole)
        cost = {shape: statistics.median(values) for shape, values in times.items()}
        reference = _Timed(counts[_REFERENCE], seconds[_REFERENCE], beginnings)
        for name in runs:
            share = statistics.median(shares[name]) if name in contenders else None
            timed = _Timed(counts[name], seconds[name], beginnings)
            row = _row(name, size, contenders.get(name), timed, reference, share, cost, model, clock, execution)
            rows.append({**row, "in_step": in_step})
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
        self.begun = 0
        """Tokens that came with the prefill: those of the decoders that count it as a pass."""

    @classmethod
    def of(cls, parts: Iterable[_Counts]) -> _Counts:
        """The sum of ``parts``."""
        whole = cls()
        for part in parts:
            for name, value in vars(part).items():
                setattr(whole, name, getattr(whole, name) + value)
        return whole


class _Timed:
    """What a contender gave, the median of its ``seconds``, and of those of them that came behind the prefill."""

    def __init__(self, counts: _Counts, seconds: Sequence[float], beginnings: Sequence[float]):
        self.counts = counts
        self.seconds = statistics.median(seconds)
        self.decoding = max(0.0, self.seconds - statistics.median(beginnings))
        self.passes = counts.model_passes - counts.batches
        self.decoded = counts.tokens - counts.begun

    def gains(self, reference: _Timed) -> tuple[float, float | None]:
        """Tokens per second over those of ``reference``: of all, and behind the prefill (None if nothing is there)."""
        whole = reference.seconds / reference.counts.tokens / (self.seconds / self.counts.tokens)
        if not (self.decoded and reference.decoded and self.decoding):
            return whole, None
        return whole, reference.decoding / reference.decoded / (self.decoding / self.decoded)


def _row(
    name: str,
    batch: int,
    decoder: Decoder | None,
    timed: _Timed,
    reference: _Timed,
    share: float | None,
    times: Mapping[tuple[int, int], float],
    model: PreTrainedModel,
    clock: Clock,
    execution: Execution,
) -> dict[str, Any]:
    k, counts = 1 if decoder is None else _block(decoder), timed.counts
    per_forward = counts.tokens / counts.forward_passes
    predicted = counted = None
    if isinstance(decoder, SetBlock) and decoder.commit == "fused" and decoder.sizes[0] == decoder.sizes[1]:
        costs = (times[1, 1], times[k, k], times[2 * k, k])
        predicted = predicted_gain(k / per_forward, k, *costs)
        if reference.decoded:
            passes = reference.passes / reference.decoded * timed.decoded
            counted = counted_gain(passes, timed.passes, counts.queries, batch * k, *costs)
    whole, decoding = timed.gains(reference)
    decoding = None if decoder is None else decoding
    wide = None if decoder is None or timed.passes == 0 else counts.queries / timed.passes

    def number(value: float | None, digits: int = 4) -> float | str:
        return "" if value is None else round(value, digits)

    return {
        "decoder": name,
        "batch": batch,
        "tokens": counts.tokens,
        "seconds": round(timed.seconds, 6),
        "seconds_decoding": number(None if decoder is None else timed.decoding, 6),
        "tokens_per_second": round(counts.tokens / timed.seconds, 3),
        "tokens_per_forward": round(per_forward, 4),
        "model_passes": counts.model_passes,
        "queries_per_pass": number(wide, 2),
        "ms_per_pass": round(1e3 * timed.seconds / counts.model_passes, 4),
        "share_outside_model": number(share),
        "gain_measured": round(whole, 4),
        "gain_decoding": number(decoding),
        "gain_predicted": number(predicted),
        "gain_counted": number(counted),
        "ms_pass_1": round(1e3 * times[1, 1], 4),
        "ms_pass_k": number(None if decoder is None else 1e3 * times[k, k]),
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


def _ours(model: PreTrainedModel, decoder: Decoder, max_new_tokens: int, eos: Any, execution: Execution) -> _Run:
    def run(batch: list[Sequence[int]]) -> _Counts:
        out = generate(model, batch, decoder, max_new_tokens, eos_token_id=eos, execution=execution)
        counts = _Counts()
        counts.tokens = sum(map(len, out.tokens))
        counts.forward_passes = sum(out.forward_passes)
        counts.model_passes = out.model_passes
        counts.queries = out.model_queries
        counts.batches = 1
        counts.begun = 0 if out.prefill_passes[0] else len(out.tokens)
        return counts

    return run


def _theirs(model: Any, max_new_tokens: int, eos: Any, options: dict[str, Any]) -> _Run:
    """`generate` of Hugging Face, with the tokens suppressed that ours never gives either."""
    config = model.config
    ends = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    special = {getattr(config, "mask_token_id", None), config.pad_token_id, config.bos_token_id} - {None, *ends}
    pad = config.pad_token_id if config.pad_token_id is not None else 0

    def run(batch: list[Sequence[int]]) -> _Counts:
        counts = _Counts()

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


def _seconds(run: Callable[[], object], device: torch.device, clock: Clock = "wall") -> float:
    now = time.perf_counter if clock == "wall" else time.process_time
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = now()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return now() - start


def _outside_model(run: Callable[[], object], device: torch.device, clock: Clock) -> tuple[float, float]:
    """Seconds of a run that are not spent in the layers and the LM head of the model, and those of all of it.

    They are what our loop costs: masks, where keys are placed, which positions to reveal, tokens to the host; and the
    prefill's share of it. With passes of fixed shapes, mask and placement are part of what is compiled or captured, and
    count as the model's. On a GPU the host waits for every part of a pass here, so that each gets its own time; such a
    run is not timed otherwise.
    """
    with model_clock(device, clock) as inside:
        total = _seconds(run, device, clock)
    return max(0.0, total - inside[0]), total


@contextmanager
def model_clock(device: torch.device, clock: Clock) -> Iterator[list[float]]:
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
