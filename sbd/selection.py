"""What tables and figures show: the key ``figures`` of an experiment file. A section that is left out is not drawn.

figures:
  figure4: {runs: [ntp, sbd, sbd_no_ntp_loss]}
  figure5:
    decoders: [gamma_0, gamma_0.01, gamma_0.1]
    lengths: [{label: 8.5, run: sbd_short, baseline: ntp_short}, ...]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationInfo, field_validator

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""Part of a path and a wildcard of the workflow."""
Text = Annotated[str, BeforeValidator(str)]


class Strict(BaseModel):
    """Unknown keys are mistakes; NaN, infinity, true and false are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_not_one(cls, given: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1, also in a list."""
        if any(isinstance(value, bool) for value in (given if isinstance(given, list | tuple) else [given])):
            kinds = set(_kinds(cls.model_fields[str(info.field_name)].annotation))
            if kinds & {int, float} and bool not in kinds:
                raise ValueError("true and false are no numbers")
        return given


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    inner = get_args(annotation)
    yield from (kind for part in inner for kind in _kinds(part)) if inner else [annotation]


class Arm(Strict):
    """A line of a table: a run decoded in some way."""

    run: Name
    decoder: Name
    label: str | None = None


class Figure1(Strict):
    """Accuracy against speed-up on one benchmark; the curves and references are those of ``pareto``."""

    benchmark: Name


class Figure4(Strict):
    """NTP loss during training."""

    runs: list[Name] = Field(min_length=1)


class Length(Strict):
    """A length of training: a run that is decoded in blocks and its next-token twin of as many steps."""

    label: Text
    run: Name
    baseline: Name


class Figure5(Strict):
    """Accuracy against forward passes for several lengths of training, the shortest first."""

    lengths: list[Length] = Field(min_length=1)
    decoders: list[Name] = Field(min_length=1)
    baseline_decoder: Name = "ntp"


class Figures12And13(Strict):
    """Accuracy against forward passes by sampler, for one run."""

    run: Name
    curves: dict[str, list[Name]] = Field(min_length=1)


class Table2(Strict):
    """Likelihood tasks; the first run is the one that the others are compared with."""

    runs: list[Name] = Field(min_length=1)
    benchmarks: list[Name] = Field(min_length=1)
    decoder: Name = "ntp"


class Rooflines(Strict):
    """Tables 3 and 4, as printed and corrected, for the presets and for the machine that the workflow runs on."""


class WallClock(Strict):
    """Measured time beside forward passes, for the curves and the first reference of ``pareto``."""


class MatpLoss(Strict):
    """Masked-token loss on held-out text by slot and by mask rate.

    block_size: of the blocks it is measured on. draws: how often the masks of each document are drawn.
    """

    runs: list[Name] = Field(min_length=1)
    block_size: PositiveInt = 16
    draws: PositiveInt = 4


class Ablations(Strict):
    """Groups of arms; in each the first is what the others are compared with."""

    groups: dict[str, list[Arm]] = Field(min_length=1)
    benchmarks: list[Name] | None = Field(None, description="default: all that any arm is evaluated on")


class Comparison(Strict):
    """An arm and what it is compared with, on the same problems."""

    arm: Arm
    baseline: Arm


class Seeds(Strict):
    """Comparisons that are shown for every seed their runs were repeated with (``repeats`` of a run)."""

    comparisons: list[Comparison] = Field(min_length=1)


class Claims(Strict):
    """Which arms stand for what the paper claims; a claim whose arms are not named is not attempted."""

    baseline: Arm
    sbd_ntp: Arm | None = None
    gamma_low: Arm | None = None
    without_ntp_loss: Arm | None = None
    with_ntp_loss: Arm | None = Field(None, description="what without_ntp_loss is compared with; default: sbd_ntp")
    without_matp_loss: Arm | None = Field(None, description="decoded in blocks, as what it is compared with")
    with_matp_loss: Arm | None = Field(None, description="default: gamma_low")
    factor: tuple[Arm, ...] = ()
    entropy_bound: tuple[Arm, ...] = ()


class Figures(Strict):
    """All that may stand below ``figures``; table 1, the curves and the held-out losses are always drawn."""

    claims: Claims | None = None
    table2: Table2 | None = None
    tables3_4: Rooflines | None = None
    figure1: Figure1 | None = None
    figure4: Figure4 | None = None
    figure5: Figure5 | None = None
    figures12_13: Figures12And13 | None = None
    wall_clock: WallClock | None = None
    matp_loss: MatpLoss | None = None
    ablations: Ablations | None = None
    seeds: Seeds | None = None


def arms_of(figures: Figures) -> Iterator[tuple[str, Arm]]:
    """All arms that sections need, with the name of the section."""
    if figures.figure5:
        for length in figures.figure5.lengths:
            yield "figure5", Arm(run=length.baseline, decoder=figures.figure5.baseline_decoder)
            yield from (("figure5", Arm(run=length.run, decoder=name)) for name in figures.figure5.decoders)
    if figures.figures12_13:
        for names in figures.figures12_13.curves.values():
            yield from (("figures12_13", Arm(run=figures.figures12_13.run, decoder=name)) for name in names)
    if figures.table2:
        yield from (("table2", Arm(run=run, decoder=figures.table2.decoder)) for run in figures.table2.runs)
    if figures.ablations:
        yield from (("ablations", arm) for arms in figures.ablations.groups.values() for arm in arms)
    if figures.seeds:
        for comparison in figures.seeds.comparisons:
            yield from (("seeds", arm) for arm in (comparison.arm, comparison.baseline))
    if figures.claims:
        for _, value in figures.claims:
            for arm in value if isinstance(value, tuple) else [value]:
                if isinstance(arm, Arm):
                    yield "claims", arm


def check(figures: Figures, known: Mapping[str, Collection[str]], evaluated: Collection[tuple[str, str]]) -> None:
    """Refuse (ValueError) a name that the experiment has not, and an arm (run, decoder) that it does not evaluate.

    known: names by kind (runs, decoders, benchmarks).
    """
    for where, kind, name in _names(figures):
        if name not in known[kind]:
            raise ValueError(f"figures.{where}: unknown name {name!r}; known are {', '.join(sorted(known[kind]))}")
    for where, arm in arms_of(figures):
        if (arm.run, arm.decoder) not in evaluated:
            raise ValueError(
                f"figures.{where}: run {arm.run!r} with decoder {arm.decoder!r} is not among the evaluations; "
                "add it there"
            )


def _names(figures: Figures) -> Iterator[tuple[str, str, str]]:
    """(where, kind, name) of all names in the file, so that a wrong one is told apart from a missing evaluation."""
    if figures.figure1:
        yield "figure1.benchmark", "benchmarks", figures.figure1.benchmark
    if figures.figure4:
        yield from (("figure4.runs", "runs", name) for name in figures.figure4.runs)
    if figures.ablations:
        names = figures.ablations.benchmarks or []
        yield from (("ablations.benchmarks", "benchmarks", name) for name in names)
    if figures.matp_loss:
        yield from (("matp_loss.runs", "runs", name) for name in figures.matp_loss.runs)
    if figures.table2:
        yield from (("table2.benchmarks", "benchmarks", name) for name in figures.table2.benchmarks)
    for where, arm in arms_of(figures):
        yield where, "runs", arm.run
        yield where, "decoders", arm.decoder
