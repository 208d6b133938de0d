"""``plan``: what every job of an experiment needs, what it costs, and on how many GPUs it would fit. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from sbd.config import Experiment, HardwareConfig
from sbd.errors import UserError
from sbd.planning import (
    BLOCK_TOKENS_PER_FORWARD,
    GIB,
    USABLE,
    Job,
    jobs,
    refuse_what_cannot_fit,
    training_job,
    unplanned,
)
from sbd.records import write_csv

SIZES = (1, 8, 64)
COLUMNS = (
    *("model", "run", "decoder", "benchmark", "gpus", "micro_rows", "accumulation"),
    *("weights_gib", "optimiser_gib", "gradients_gib", "activations_gib", "logits_gib", "cache_gib", "total_gib"),
    *("tokens_per_second", "hours", "gpu_hours", "cost"),
)


def run(experiment: Experiment, **changed: Any) -> None:
    """Print the plan and write ``plan.csv``; a job that cannot fit is a UserError after the table that shows it."""
    stated = experiment.hardware.model_dump()
    if changed.get("gpu", stated["gpu"]) != stated["gpu"]:
        del stated["memory_gib"]  # of another kind of GPU
    try:
        hardware = HardwareConfig.model_validate({**stated, **changed})
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise UserError(f"--{option}: {first['msg']} (got {first['input']})") from None
    planned = list(jobs(experiment, hardware))
    left_out = unplanned(experiment)
    if not planned:
        raise UserError(f"there is nothing to plan: {'; '.join(left_out)}")
    rows = [_row(job, hardware) for job in planned]
    path = experiment.folder / "plan.csv"
    write_csv(rows, path, COLUMNS)
    print(
        f"{hardware.gpu} with {hardware.memory_gib:g} GiB, MFU {hardware.mfu:.0%}, {hardware.price:g} an hour and GPU; "
        f"training documents of {hardware.document_tokens:,} tokens, "
        f"the longest answer of a batch {hardware.answer_share:.0%} of the limit, "
        f"{BLOCK_TOKENS_PER_FORWARD:g} tokens a pass in blocks. Arithmetic, not a measurement."
    )
    trainings = [row for row in rows if not row["decoder"]]
    names = ("weights", "optimiser", "gradients", "activations", "logits")
    print("\nTrainings; GiB on each GPU")
    _table(
        ["model", "run", "GPUs", "rows", "accum.", *names, "total", "tokens/s", "hours", "GPU hours", "cost"],
        [
            [
                *(row["model"], row["run"], row["gpus"], row["micro_rows"], row["accumulation"]),
                *(f"{row[f'{name}_gib']:.1f}" for name in (*names, "total")),
                *(_short(row[name]) for name in ("tokens_per_second", "hours", "gpu_hours", "cost")),
            ]
            for row in trainings
        ],
    )
    print("\nEvaluations, one GPU each; GiB")
    _table(
        ["model", "run", "decoder", "benchmark", "batch", "weights", "cache", "total", "tokens/s", "hours", "cost"],
        [
            [
                *(row["model"], row["run"], row["decoder"], row["benchmark"], row["micro_rows"]),
                *(f"{row[name]:.1f}" for name in ("weights_gib", "cache_gib", "total_gib")),
                *(_short(row[name]) for name in ("tokens_per_second", "hours", "cost")),
            ]
            for row in rows
            if row["decoder"]
        ],
    )
    print(
        "\nWhat fits: GiB on each GPU, and hours, by number of GPUs (more than a node: arithmetic only, not launched)"
    )
    _table(
        ["model", "run", *(f"{size} GPU{'s' * (size > 1)}" for size in SIZES)], _sizes(experiment, planned, hardware)
    )
    if left_out:
        print("\nNot planned, with what is evaluated of them:", *left_out, sep="\n  ")
    hours, cost = sum(job.gpu_hours for job in planned), sum(row["cost"] for row in rows)
    print(
        f"\n{len(trainings)} trainings and {len(rows) - len(trainings)} evaluations: "
        f"{_short(hours)} GPU hours, {_short(cost)}; see {path}"
    )
    refuse_what_cannot_fit(experiment, hardware)


def _row(job: Job, hardware: HardwareConfig) -> dict[str, Any]:
    memory = {f"{name}_gib": round(getattr(job.memory, name) / GIB, 2) for name in job.memory.__dataclass_fields__}
    return {
        **{name: getattr(job, name) for name in COLUMNS[:7]},
        **memory,
        "total_gib": round(job.memory.total / GIB, 2),
        "tokens_per_second": round(job.tokens_per_second, 1),
        "hours": round(job.hours, 3),
        "gpu_hours": round(job.gpu_hours, 3),
        "cost": round(job.gpu_hours * hardware.price, 2),
    }


def _sizes(experiment: Experiment, planned: list[Job], hardware: HardwareConfig) -> list[list[str]]:
    lines = []
    for job in planned:
        if job.decoder:
            continue
        line = [job.model, job.run]
        for size in SIZES:
            if experiment.runs[job.run].batch_rows % size:
                line.append("rows do not divide")
                continue
            other = training_job(experiment, job.model, job.run, hardware, size)
            assert other is not None
            fits = other.memory.total <= USABLE * hardware.memory_gib * GIB
            line.append(f"{other.memory.total / GIB:.0f} GiB, " + (f"{_short(other.hours)} h" if fits else "too much"))
        lines.append(line)
    return lines


def _short(number: float) -> str:
    """Whole, or with two digits where it is small."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _table(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    texts = [list(header), *([str(cell) for cell in line] for line in lines)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(header))]
    for line in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
