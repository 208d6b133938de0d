"""Figure 5 of the paper: accuracy against forward passes for several lengths of training; stars: next-token twins.

The first row is measured here, one panel per model and benchmark; the second is what the paper reports. It counts
passes over a canvas of 1024 tokens without an early stop; here they are counted to the end of each solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paper_figures import beside, command, inputs, style
from paper_figures.curves import Marks, curve, star, star_look
from paper_figures.labels import blocks_text, number, run_label, strength
from sbd.config import Experiment
from sbd.selection import Arm, Figure5


def draw(
    experiment: Experiment, records: pd.DataFrame, reported: pd.DataFrame, chosen: Figure5, partial: bool = False
) -> Figure:
    """The figure from checked records and the reported points."""
    arms = [Arm(run=length.baseline, decoder=chosen.baseline_decoder) for length in chosen.lengths]
    arms += [Arm(run=length.run, decoder=name) for length in chosen.lengths for name in chosen.decoders]
    rows, missing = inputs.rows_of(records, experiment, arms, partial, complete=True)
    page = beside.page(experiment, rows, reported, height=2.6)
    every = []
    for axes, part in page.measured:
        every.append((axes, _measured(axes, experiment, part.set_index(["run", "decoder"]), chosen)))
    for axes, part in page.reported:
        every.append((axes, _reported(axes, part)))
        axes.legend(loc="lower right", title="its training steps", title_fontsize=7)
    looks = style.looks(length.label for length in chosen.lengths)
    handles = [Line2D([], [], **look, label=f"{label} steps") for label, look in looks.items()]
    handles.append(Line2D([], [], **star_look("#404040"), label="next-token twin, decoded one by one"))
    page.figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)))
    runs = " / ".join(run_label(experiment, length.run) for length in chosen.lengths)
    blocks = blocks_text(experiment, (Arm(run=chosen.lengths[0].run, decoder=name) for name in chosen.decoders))
    style.note(
        page.figure,
        f"scale {experiment.scale}; curves: {runs}{blocks}; bars: 95% intervals over problems; small numbers: "
        r"$\gamma$. The paper counts passes over 1024 tokens without early stop, we count to the end of each solution",
        command.partial_warning(missing),
    )
    for axes, marks in every:
        marks.place(axes)
    return page.figure


def _measured(axes: Axes, experiment: Experiment, rows: pd.DataFrame, chosen: Figure5) -> Marks:
    looks = style.looks(length.label for length in chosen.lengths)
    marks = Marks()
    for length in chosen.lengths:
        look = looks[length.label]
        present = [name for name in chosen.decoders if (length.run, name) in rows.index]
        if present:
            points = rows.loc[[(length.run, name) for name in present]]
            pairs = [strength(experiment.decoders[name]) for name in present]
            curve(
                axes,
                marks,
                (points["forward_passes"] / points["n"]).to_numpy(),
                points["score"].to_numpy(),
                look,
                [number(pair[1]) if pair else None for pair in pairs],
                points["score_low"].to_numpy(),
                points["score_high"].to_numpy(),
            )
        if (length.baseline, chosen.baseline_decoder) in rows.index:
            row = inputs.row_at(rows, (length.baseline, chosen.baseline_decoder))
            star(axes, marks, row, float(row["forward_passes"] / row["n"]), look["color"])
    return marks


def _reported(axes: Axes, reported: pd.DataFrame) -> Marks:
    lengths = inputs.unique(reported, "iterations")
    looks = style.looks(lengths)
    marks = Marks()
    for length in lengths:
        part = inputs.where(reported, iterations=length)
        free = inputs.where(part, sampler="ntp_autoregressive")
        blocks = part.drop(free.index)
        x, y = blocks["mean_nfe"].to_numpy(), blocks["accuracy_percent"].to_numpy()
        curve(axes, marks, x, y, {**looks[length], "label": length})
        axes.plot(free["mean_nfe"], free["accuracy_percent"], **star_look(looks[length]["color"]))
    return marks


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and the reported points -> figure5.pdf and .png."""
    text = ["benchmark", "iterations", "sampler"]
    return beside.main("figure5", __doc__, lambda e: e.figures.figure5, draw, text, ["gamma"], arguments)


if __name__ == "__main__":
    command.run(main)
