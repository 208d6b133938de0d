"""Figures 12 and 13 of the paper: the factor rule against the entropy bound, ordered by entropy and by confidence.

The first row is measured here, one panel per model and benchmark, all rules in it; the second is as reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paper_figures import beside, command, inputs, style
from paper_figures.curves import Marks, curve
from paper_figures.labels import blocks_text, mathtext, number, run_label, strength
from sbd.config import Experiment
from sbd.selection import Arm, Figures12And13

REPORTED_RULES = {"eb_entropy": "EB by entropy", "eb_confidence": "EB by confidence", "factor": "factor"}


def draw(
    experiment: Experiment, records: pd.DataFrame, reported: pd.DataFrame, chosen: Figures12And13, partial: bool = False
) -> Figure:
    """The figure from checked records and the reported points."""
    arms = [Arm(run=chosen.run, decoder=name) for names in chosen.curves.values() for name in names]
    rows, missing = inputs.rows_of(records, experiment, arms, partial, complete=True)
    page = beside.page(experiment, rows, reported, height=2.4)
    for axes, part in page.measured:
        _measured(axes, part.set_index("decoder"), chosen)
    for axes, part in page.reported:
        _reported(axes, part, list(chosen.curves))
    looks = style.looks(chosen.curves)
    handles = [
        Line2D([], [], **looks[name], label=f"{name}{_range(experiment, names)}")
        for name, names in chosen.curves.items()
    ]
    page.figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    blocks = blocks_text(experiment, arms)
    text = (
        f"scale {experiment.scale}, run {run_label(experiment, chosen.run)}{blocks}; bars: 95% intervals over problems"
    )
    style.note(page.figure, text, command.partial_warning(missing))
    return page.figure


def _range(experiment: Experiment, decoders: Sequence[str]) -> str:
    """The values along a curve, which its points have no room for."""
    pairs = [pair for name in decoders if (pair := strength(experiment.decoders[name]))]
    if not pairs:
        return ""
    values = [value for _, value in pairs]
    name = "f" if pairs[0][0] == "factor" else pairs[0][0]
    return mathtext(f" ({name} {number(min(values))} to {number(max(values))})")


def _measured(axes: Axes, rows: pd.DataFrame, chosen: Figures12And13) -> None:
    looks = style.looks(chosen.curves)
    for name, decoders in chosen.curves.items():
        present = [decoder for decoder in decoders if decoder in rows.index]
        if present:
            part = rows.loc[present]
            x = (part["forward_passes"] / part["n"]).to_numpy()
            low, high = part["score_low"].to_numpy(), part["score_high"].to_numpy()
            curve(axes, Marks(), x, part["score"].to_numpy(), looks[name], (), low, high)


def _reported(axes: Axes, rows: pd.DataFrame, curves: Sequence[str]) -> None:
    """A rule has the look of the curve of that name, where there is one."""
    names = [REPORTED_RULES.get(rule, rule) for rule in inputs.unique(rows, "sampler")]
    looks = style.looks([*curves, *names])
    for rule in inputs.unique(rows, "sampler"):
        part = inputs.where(rows, sampler=rule).sort_values("mean_nfe")
        x, y = part["mean_nfe"].to_numpy(), part["accuracy_percent"].to_numpy()
        name = REPORTED_RULES.get(rule, rule)
        curve(axes, Marks(), x, y, looks[name])
        axes.lines[-1].set_label(name if name not in curves else "_")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower right")


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and the reported points -> figures12_13.pdf and .png."""
    text = ["benchmark", "sampler"]
    return beside.main("figures12_13", __doc__, lambda e: e.figures.figures12_13, draw, text, [], arguments)


if __name__ == "__main__":
    command.run(main)
