"""Decoders side by side: everything takes turns, and medians of several rounds are reported.

All contenders run in one process, in turn for each batch of prompts, and behind each of them passes of fixed widths, so
that a slow moment of the machine strikes all of them. A median is that of one turn over the rounds: such a moment
strikes few turns, but hardly any round of many turns is without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import Any

import torch
from transformers import PreTrainedModel

from sbd.decoding import Autoregressive, Decoder, fixed
from sbd.decoding.fixed import Execution
from sbd.errors import UserError
from sbd.progress import progress
from sbd.speed.contenders import Counts, Run, ours, theirs
from sbd.speed.passes import Shape, block_of, one_pass, shapes_of
from sbd.speed.stopwatch import Clock, Stopwatch
from sbd.speed.table import Timed, row

_REFERENCE = "autoregressive"
_BURST, _MOST = 5e-3, 8
"""Passes of one width in a row: for so many seconds, and no more of them than that."""


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
    label: str | None = None,
) -> list[dict[str, Any]]:
    """One row for each batch size and decoder, our autoregressive loop first, and the baselines of Hugging Face.

    The equation is about passes behind the prompt, so ``gain_decoding`` stands beside ``gain_measured``: there the time
    of one autoregressive token, which is that of checks, memory and prefill, is taken off each decoder's time (and the
    tokens that the prefill itself gives off their number). Columns: see ``row``.

    ``prompts`` are token ids; each batch size decodes all of them, in batches. Every contender is warmed up once. The
    prompt lookup of Hugging Face is measured at batch 1 only, since it knows no other. ``in_step``: each prompt is a
    batch of its own, of as many equal rows. These start and end their blocks together, which equation 16 takes for
    granted of a batch; rows of different prompts do not, and wait for each other, in any decoder. ``label``: how far it
    is, on the error stream, under this name.

    Raises UserError for prompts that do not fill their batches, and for settings that measure nothing.
    """
    watch = Stopwatch(model.device, clock)
    _require_measurable(prompts, batch_sizes, repeats, in_step)
    fixed.check(model, execution)
    contenders = {_REFERENCE: Autoregressive(), **decoders}
    capacity = max(map(len, prompts)) + max_new_tokens + 2 * max(map(block_of, contenders.values()))
    begin = ours(model, Autoregressive(), 1, eos_token_id, execution)

    def runs_of(size: int) -> dict[str, Run]:
        runs = {
            name: ours(model, decoder, max_new_tokens, eos_token_id, execution) for name, decoder in contenders.items()
        }
        if hugging_face:
            runs["hf_generate"] = theirs(model, max_new_tokens, eos_token_id)
        if hugging_face and size == 1:
            runs["hf_prompt_lookup"] = theirs(model, max_new_tokens, eos_token_id, prompt_lookup_num_tokens=10)
        return runs

    plan = [(size, _batches(prompts, size, in_step), runs_of(size)) for size in batch_sizes]
    turns = (1 + repeats) * sum(len(batches) * len(runs) for _, batches, runs in plan)
    rows = []
    with progress(turns, label or "", unit="turn", disable=label is None) as bar:
        for size, batches, runs in plan:
            counts = {name: _warm_up(run, batches, bar.update) for name, run in runs.items()}
            context = round(mean(map(len, prompts)) + counts[_REFERENCE].tokens / sum(map(len, batches)) / 2)
            shapes = shapes_of(contenders.values(), size)
            passes = {shape: one_pass(model, shape, context, capacity, execution, in_step) for shape in shapes}
            rounds = [_round(batches, runs, contenders, begin, passes, watch, bar.update) for _ in range(repeats)]
            cost = {shape: mean(_medians([one.passes[shape] for one in rounds])) for shape in shapes}
            beginning = sum(_medians([one.beginning for one in rounds]))
            timed = {
                name: Timed(
                    counts[name],
                    [sum(one.seconds[name]) for one in rounds],
                    sum(_medians([one.seconds[name] for one in rounds])),
                    beginning,
                    _share(rounds, name) if name in contenders else None,
                )
                for name in runs
            }
            for name in runs:
                decoder = contenders.get(name)
                about = row(name, size, decoder, timed[name], timed[_REFERENCE], cost, model, clock, execution)
                rows.append({**about, "in_step": in_step})
    return rows


def _require_measurable(
    prompts: Sequence[Sequence[int]], batch_sizes: Sequence[int], repeats: int, in_step: bool
) -> None:
    if not prompts:
        raise UserError("speed needs at least one prompt")
    if repeats < 1 or any(size < 1 for size in batch_sizes):
        raise UserError("speed needs repeats and batch sizes of 1 or more")
    for size in batch_sizes:
        if len(prompts) % size and not in_step:  # pass times are those of full batches
            raise UserError(
                f"{len(prompts)} prompts do not fill batches of {size}; measure a multiple of every batch size "
                "(--problems, --batch-size)"
            )


def _batches(prompts: Sequence[Sequence[int]], size: int, in_step: bool) -> list[list[Sequence[int]]]:
    if in_step:
        return [[prompt] * size for prompt in prompts]
    return [list(prompts[start : start + size]) for start in range(0, len(prompts), size)]


def _warm_up(run: Run, batches: Sequence[list[Sequence[int]]], done: Callable[[], object]) -> Counts:
    """What the batches come to, which is the same in every round."""
    parts = []
    for batch in batches:
        parts.append(run(batch))
        done()
    return Counts.of(parts)


@dataclass(frozen=True)
class _Round:
    """Seconds of each batch: of contenders, of beginnings, and of those watched, in all and outside the model.

    passes: seconds of one pass, behind each turn.
    """

    seconds: dict[str, list[float]]
    beginning: list[float]
    watched: dict[str, list[float]]
    outside: dict[str, list[float]]
    passes: dict[Shape, list[float]]


def _medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Over the rounds, of each turn."""
    return [median(of_turn) for of_turn in zip(*rounds, strict=True)]


def _share(rounds: Sequence[_Round], name: str) -> float:
    """Of the time of a contender, what is spent outside the model."""
    outside = _medians([one.outside[name] for one in rounds])
    return sum(outside) / sum(_medians([one.watched[name] for one in rounds]))


def _round(
    batches: Sequence[list[Sequence[int]]],
    runs: Mapping[str, Run],
    watched: Collection[str],
    begin: Run,
    passes: Mapping[Shape, Callable[[], object]],
    watch: Stopwatch,
    done: Callable[[], object],
) -> _Round:
    """Everything once with each batch; ``watched`` are those whose share outside the model is asked for."""
    times = _Round(
        {name: [] for name in runs},
        [],
        {name: [] for name in watched},
        {name: [] for name in watched},
        {shape: [] for shape in passes},
    )
    for batch in batches:
        times.beginning.append(watch.seconds(partial(begin, batch)))
        for name, run in runs.items():
            of_batch = partial(run, batch)
            if name in watched:
                outside, whole = watch.outside_model(of_batch)
                times.outside[name].append(outside)
                times.watched[name].append(whole)
                times.seconds[name].append(watch.seconds(of_batch) if watch.disturbs else whole)
            else:
                times.seconds[name].append(watch.seconds(of_batch))
            with torch.inference_mode():
                for shape, once in passes.items():
                    _burst(once, watch)  # in which a pass still finds the caches full of something else
                    times.passes[shape].append(mean(_burst(once, watch)))
            done()
    return times


def _burst(once: Callable[[], object], watch: Stopwatch) -> list[float]:
    """Seconds of passes in a row."""
    times = [watch.seconds(once)]
    while sum(times) < _BURST and len(times) < _MOST:
        times.append(watch.seconds(once))
    return times
