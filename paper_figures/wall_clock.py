"""Measured wall-clock speed-up beside the speed-up in forward passes and what the roofline makes of it.

Speed-up is tokens per second over those of the baseline (the first reference of ``pareto``) for the same model,
benchmark and batch. The dashed line is the paper's assumption that both are equal. The roofline takes the shape of the
model, the measured machine with the bytes per number it was measured in, and the mean length of a prompt with half of
its answer as cached tokens. Equation 16 is of set block decoding: other decoders have no thin line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from paper_figures import command, inputs, pareto, style
from paper_figures.curves import Marks, curve
from paper_figures.labels import benchmark_label, number, strength
from sbd import roofline
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.roofline import Hardware, Roofline
from sbd.selection import Arm

THIN = {"linestyle": "-", "linewidth": 0.7, "marker": ""}
"""How a roofline looks beside the curves of what was measured."""


def draw(
    experiment: Experiment,
    records: pd.DataFrame,
    machine: Hardware | None = None,
    cached: int = 64,
    partial: bool = False,
) -> Figure:
    """One panel per benchmark, one curve per model; with a machine also its roofline, a thin line."""
    rows, missing = inputs.rows_of(records, experiment, pareto.arms(experiment), partial)
    if rows["tokens_per_second"].isna().to_numpy().any():
        raise UserError("a record has no tokens per second; evaluate it again")
    if not experiment.pareto.references:
        raise UserError("pareto.references of the experiment is empty; its first entry is the baseline of the speed")
    baseline = experiment.pareto.references[0]
    benchmarks = inputs.unique(rows, "benchmark")
    looks = pareto.curve_looks(experiment)
    figure, panels = plt.subplots(
        1, len(benchmarks), figsize=(style.PAGE if len(benchmarks) > 1 else style.COLUMN, 3.1), squeeze=False
    )
    every = []
    for axes, benchmark in zip(panels.flat, benchmarks, strict=True):
        part = inputs.where(rows, benchmark=benchmark)
        marks, batch = Marks(), experiment.benchmarks[benchmark].batch_size
        for name, grid in experiment.pareto.curves.items():
            for model in experiment.models:
                found = inputs.where(part, model=model).set_index(["run", "decoder"])
                if (baseline.run, baseline.decoder) not in found.index:
                    continue
                free = float(inputs.row_at(found, (baseline.run, baseline.decoder))["tokens_per_second"])
                points = [arm for arm in grid if (arm.run, arm.decoder) in found.index]
                if not points:
                    continue
                chosen = found.loc[[(arm.run, arm.decoder) for arm in points]]
                x, y = chosen["tokens_per_forward"].to_numpy(), chosen["tokens_per_second"].to_numpy() / free
                pairs = [strength(experiment.decoders[arm.decoder]) for arm in points]
                look = looks[f"{model}/{name}"]
                curve(axes, marks, x, y, look, [number(pair[1]) if pair else None for pair in pairs])
                if machine:
                    _roofline(axes, experiment, model, points, x, machine, batch, cached, look["color"])
        top = float(part["tokens_per_forward"].to_numpy().max())
        axes.plot([1, top], [1, top], color="#808080", linewidth=0.8, linestyle=(0, (5, 3)), marker="", zorder=1)
        axes.set_title(f"{benchmark_label(experiment, benchmark, int(part['n'].iloc[0]))}, batch {batch}")
        axes.set_xlabel("speed-up in forward passes")
        pareto.speed_axis(axes, part["tokens_per_forward"].to_numpy())
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        every.append((axes, marks))
    panels[0, 0].set_ylabel("speed-up in wall-clock time")
    handles = pareto.curve_handles(experiment, looks)
    handles.append(Line2D([], [], color="#808080", linestyle=(0, (5, 3)), linewidth=0.8, label="equal speed-ups"))
    if machine:
        handles.append(Line2D([], [], color="#404040", **THIN, label=f"roofline, {machine.name}"))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    text = (
        f"scale {experiment.scale}; {pareto.curves_text(experiment)}; time of generating whole batches, prefill "
        "included, measured once while other evaluations ran beside on the same cores; "
        r"small numbers: $\gamma$"
    )
    if machine:
        text += f"; roofline over {cached} cached tokens"
    style.note(figure, text, command.partial_warning(missing))
    for axes, marks in every:
        marks.place(axes)
    return figure


def _roofline(
    axes: Axes,
    experiment: Experiment,
    model: str,
    arms: Sequence[Arm],
    speeds: np.ndarray,
    machine: Hardware,
    batch: int,
    cached: int,
    color: str,
) -> None:
    """What equation 16 gives for the same block size and passes; models without a shape have none."""
    config = experiment.models[model]
    if not config.shape:
        return
    shape = roofline.Shape.of(model, config.shape, experiment.tokenizer.vocab_size or 0)
    predicted = Roofline(shape, machine)
    points = []
    for arm, speed in zip(arms, speeds, strict=True):
        decoder = experiment.decoders[arm.decoder]
        size = decoder.block_size
        if decoder.kind == "set_block" and isinstance(size, int) and speed >= 1:
            points.append((float(speed), predicted.speed_up(batch, size, cached, float(speed))))
    if points:
        axes.plot(*np.array(points).T, color=color, **THIN)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv (and a measured machine) -> wall_clock.pdf and .png."""
    parser = command.parser(__doc__, records="records.csv of `python -m sbd collect`, or a CSV of timed runs like it")
    parser.add_argument("--machine", type=Path, help="CSV of `python -m sbd.roofline`")
    parser.add_argument("--cached", type=int, default=64, help="cached tokens of the roofline")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    machine = roofline.read_hardware(options.machine)[0] if options.machine else None
    with style.house_style():
        records = inputs.read_records(options.records, experiment)
        figure = draw(experiment, records, machine, options.cached, options.partial)
        return style.save(figure, options.output, "wall_clock")


if __name__ == "__main__":
    command.run(main)
