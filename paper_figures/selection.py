"""Which runs and decoders a figure shows: the key ``figures`` of an experiment file, checked like the rest of it.

figures:
  figure4: {runs: [ntp, sbd, sbd_no_ntp_loss]}
  figure5:
    decoders: [gamma_0, gamma_0.01, gamma_0.1]
    lengths: [{label: 8.5, run: sbd_short, baseline: ntp_short}, ...]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from sbd.config import Arm, Experiment, Name, Strict, _read_yaml
from sbd.errors import UserError

Text = Annotated[str, BeforeValidator(str)]


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
    """Accuracy against forward passes for several lengths of training."""

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


class Ablations(Strict):
    """Groups of arms; in each the first is the paper's own setting, with which the others are compared."""

    groups: dict[str, list[Arm]] = Field(min_length=1)


class Claims(Strict):
    """Which arms stand for what the paper claims; a claim whose arms are not named is not attempted."""

    baseline: Arm
    sbd_ntp: Arm | None = None
    gamma_low: Arm | None = None
    gamma_high: Arm | None = None
    without_ntp_loss: Arm | None = None
    factor: tuple[Arm, ...] = ()
    entropy_bound: tuple[Arm, ...] = ()


class Figures(Strict):
    """All that may stand below ``figures``."""

    figure1: Figure1 | None = None
    figure4: Figure4 | None = None
    figure5: Figure5 | None = None
    figures12_13: Figures12And13 | None = None
    table2: Table2 | None = None
    ablations: Ablations | None = None
    claims: Claims | None = None


Section = TypeVar("Section")


def load(path: str | Path) -> tuple[Experiment, Figures]:
    """The experiment and what its figures show. Raises UserError for unknown keys and names."""
    path = Path(path)
    raw = _read_yaml(path)
    figures = raw.pop("figures", None) or {}
    try:
        experiment = Experiment.model_validate(raw)
        found = Figures.model_validate(figures)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {where}: {first['msg']}") from None
    for where, kind, name in _names(found):
        known = getattr(experiment, kind)
        if name not in known:
            raise UserError(f"{path}: figures.{where}: unknown name {name!r}; known are {', '.join(sorted(known))}")
    asked = {(run, decoder) for _, run, decoder, _ in experiment.jobs()}
    for where, arm in arms_of(found):
        if (arm.run, arm.decoder) not in asked:
            raise UserError(
                f"{path}: figures.{where}: run {arm.run!r} with decoder {arm.decoder!r} is not among the evaluations; "
                "add it there"
            )
    return experiment, found


def required(section: Section | None, name: str, path: str | Path) -> Section:
    """The section of a figure. Raises UserError where the experiment has none."""
    if section is None:
        raise UserError(f"{path}: no figures.{name}; add it (see paper_figures/selection.py) to draw this")
    return section


def arms_of(figures: Figures) -> Iterator[tuple[str, Arm]]:
    """All arms that figures need, with where they are named."""
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
    if figures.claims:
        for _, value in figures.claims:
            for arm in value if isinstance(value, tuple) else [value]:
                if isinstance(arm, Arm):
                    yield "claims", arm


def _names(figures: Figures) -> Iterator[tuple[str, str, str]]:
    """(where, kind, name) of all names in the file, so that a wrong one is told apart from a missing evaluation."""
    if figures.figure1:
        yield "figure1.benchmark", "benchmarks", figures.figure1.benchmark
    if figures.figure4:
        yield from (("figure4.runs", "runs", name) for name in figures.figure4.runs)
    if figures.table2:
        yield from (("table2.benchmarks", "benchmarks", name) for name in figures.table2.benchmarks)
    for where, arm in arms_of(figures):
        yield where, "runs", arm.run
        yield where, "decoders", arm.decoder
