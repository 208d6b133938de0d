"""What is shown beside ``figures`` (see sbd.selection): table 1, the curves, wall-clock and single decodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from sbd.selection import Arm, Name, Strict


class Table1Config(Strict):
    """The rows of table 1; the first is the baseline of the paired differences."""

    rows: list[Arm] = Field(min_length=1)


class ParetoConfig(Strict):
    """Accuracy against tokens per forward: one curve per model and entry, and reference points."""

    curves: dict[str, list[Arm]]
    references: list[Arm] = []


class SpeedConfig(Strict):
    """What is timed, side by side: decoders of one model, on the first problems of a benchmark's test set.

    threads: of torch on a CPU. The workflow runs nothing beside it. dtype: of the weights; "auto" is the checkpoint's.
    clock: "cpu" counts the time of the processor, where other programs run beside. in_step: a batch is one problem in
    equal rows, which start and end their blocks together, as equation 16 of the paper takes for granted.
    """

    decoders: list[Name] = Field(min_length=1)
    benchmark: Name | None = None
    batch_sizes: list[PositiveInt] = [1, 8]
    problems: PositiveInt = 16
    repeats: PositiveInt = 3
    threads: PositiveInt = 1
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    clock: Literal["wall", "cpu"] = "wall"
    in_step: bool = False


class RunSpeedConfig(SpeedConfig):
    """What the workflow times: one run of every model, or of those named."""

    run: Name
    models: list[Name] | None = None


class TracesConfig(Strict):
    """Pages that show one decode each, pass by pass: decoders of a run on one problem of a benchmark's test set.

    decoders: all of the experiment if left out. problem: its number in the test set, from 0.
    """

    model: Name
    run: Name
    decoders: list[Name] | None = None
    benchmark: Name | None = None
    problem: int = Field(0, ge=0)
