"""Every table and figure with its command, its inputs and its files: what the workflow runs and the index lists.

Run as a module it writes ``docs/paper_index.md``. Nothing here imports pandas or matplotlib: every job reads it.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paper_figures import command
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.files import write_text

RECORDS = ("records", "records.csv")
DIFFERENCES = ("differences", "differences.csv")
CONTRASTS = ("contrasts", "contrasts.csv")
MACHINE = ("machine", "machine.csv")
REPORTED = ("reported", "experiments/reported")
SPEED = ("speed", "speed/MODEL/RUN.csv")
"""A file for every model that the key ``speed`` of the experiment times; none without that key."""
STYLE = "paper_figures/sbd-style.mplstyle"
CLAIMS, TABLES, FIGURES, OWN = "1 Claims", "2 Tables of the paper", "3 Figures of the paper", "4 Not in the paper"
"""Categories of the report, which it sorts by name."""


@dataclass(frozen=True)
class Entry:
    """A table or figure.

    inputs: option and file, those without a slash in the folder of the scale. outputs: names of files, tables before
    figures. section: the key of ``figures`` (or ``speed``) without which it is not drawn, None for what always is.
    """

    paper: str
    module: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    category: str
    section: str | None = None
    experiment: bool = True

    def reads(self, experiment: Experiment, folder: Path) -> list[str]:
        """The files it is made of, from the CSV files in ``folder``."""
        paths = [path for _, file in self.inputs for path in located(file, experiment, folder)]
        files = [str(f) for path in paths for f in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
        return [*files, STYLE] if any(name.endswith(".pdf") for name in self.outputs) else files

    def writes(self, folder: Path) -> list[str]:
        """Its files: figures and tables in folders of their own below ``folder``."""
        return [str(placed(name, folder)) for name in self.outputs]

    def arguments(self, experiment: Experiment, source: Path, target: Path) -> list[str]:
        """Of its module: from the CSV files in ``source`` to files below ``target``."""
        words = ["--experiment", experiment.file.as_posix()] if self.experiment else []
        for name, file in self.inputs:
            paths = located(file, experiment, source)
            words += [f"--{name}", *map(str, paths)] if paths else []
        folders = list(dict.fromkeys(str(placed(name, target).parent) for name in self.outputs))
        return [*words, "--output", folders[0], *(["--figures", folders[1]] if len(folders) > 1 else [])]

    def command(self, experiment: Experiment, source: Path, target: Path) -> str:
        """The command line, from the root of the repository."""
        return shlex.join(["python", "-m", f"paper_figures.{self.module}", *self.arguments(experiment, source, target)])


def located(file: str, experiment: Experiment, folder: Path) -> list[Path]:
    """Where an input lies: what ``sbd collect`` wrote in the folder of the scale, or a path of the repository.

    Decoders are timed once for all experiments that share their models, so those files lie with the models.
    """
    if file == SPEED[1]:
        if experiment.speed is None:
            return []
        folder = experiment.work_folder if folder == experiment.folder else folder
        models = experiment.speed.models or experiment.models
        return [folder / "speed" / model / f"{experiment.speed.run}.csv" for model in models]
    return [Path(file) if "/" in file else folder / file]


def placed(name: str, folder: Path) -> Path:
    """Where an output goes."""
    return folder / ("figures" if name.endswith((".pdf", ".png")) else "tables") / name


def _figure(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" for name in names for suffix in (".pdf", ".png"))


def _table(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{suffix}" for name in names for suffix in (".csv", ".md", ".tex"))


ENTRIES = (
    Entry("claims", "claims", (RECORDS, DIFFERENCES, CONTRASTS, REPORTED, SPEED), _table("claims"), CLAIMS, "claims"),
    Entry("table 1", "table1", (RECORDS, REPORTED), _table("table1"), TABLES),
    Entry("table 2", "table2", (RECORDS, DIFFERENCES, REPORTED), _table("table2"), TABLES, "table2"),
    Entry(
        "tables 3 and 4",
        "tables3_4",
        (REPORTED, MACHINE),
        _table("table3", "table3_corrected", "table4", "table4_corrected"),
        TABLES,
        "tables3_4",
        experiment=False,
    ),
    Entry("figure 1", "figure1", (RECORDS, DIFFERENCES, REPORTED), _figure("figure1"), FIGURES, "figure1"),
    Entry("figure 4", "figure4", (("metrics", "metrics.csv"),), _figure("figure4"), FIGURES, "figure4"),
    Entry("figure 5", "figure5", (RECORDS, REPORTED), _figure("figure5"), FIGURES, "figure5"),
    Entry("figures 12 and 13", "figures12_13", (RECORDS, REPORTED), _figure("figures12_13"), FIGURES, "figures12_13"),
    Entry("accuracy against speed", "pareto", (RECORDS,), _figure("pareto"), OWN),
    Entry("held-out losses", "losses", (("losses", "losses.csv"),), _table("losses"), OWN),
    Entry("wall-clock time", "wall_clock", (RECORDS, MACHINE), _figure("wall_clock"), OWN, "wall_clock"),
    Entry("masked-token loss", "matp_loss", (("losses", "matp_loss.csv"),), _figure("matp_loss"), OWN, "matp_loss"),
    Entry(
        "ablations",
        "ablations",
        (RECORDS, DIFFERENCES),
        (*_table("ablations"), *_figure("ablations")),
        OWN,
        "ablations",
    ),
    Entry("seeds", "seeds", (RECORDS, DIFFERENCES), _table("seeds"), OWN, "seeds"),
    Entry(
        "decoders in seconds",
        "decoding_speed",
        (SPEED,),
        (*_table("decoding_speed"), *_figure("decoding_speed")),
        OWN,
        "speed",
    ),
)
"""Figures 2, 3 and 6 to 11 of the paper are drawings and code, tables 3 and 4 are calculations."""


def drawn(experiment: Experiment) -> list[Entry]:
    """The tables and figures that an experiment asks for."""
    asked = {"speed": experiment.speed, **dict(experiment.figures)}
    return [e for e in ENTRIES if e.section is None or asked[e.section] is not None]


def page(scale: str) -> str:
    """``docs/paper_index.md``."""
    experiment = load_experiment(Path("experiments") / f"{scale}.yaml")
    folder = experiment.folder
    lines = [
        "# From the paper's tables and figures to commands and files",
        "",
        "Generated by `python -m paper_figures.paper_index`. Commands run from the root of the repository; another "
        "scale has another experiment file and folder. The commands of the table make what is missing first, also by "
        "training; those below it draw from what is there. What is in `results/SCALE/` and not drawn comes from "
        "`python -m sbd collect`, `machine.csv` from `python -m sbd.roofline`, `speed/` from `python -m sbd speed`. "
        "`snakemake --cores 1 figures` draws all of it from `results/reference/`, for the scales that are kept there. "
        "Figures 2, 3 and 6 to 11 of the paper are drawings and listings of code; what is wrong with them stands in "
        "`docs/errata.md`.",
        "",
        "| of the paper | command | files | inputs |",
        "| --- | --- | --- | --- |",
    ]
    for entry in ENTRIES:
        files = ", ".join(f"`{path}`" for path in entry.writes(folder))
        paths = [path for _, file in entry.inputs for path in located(file, experiment, folder)]
        inputs = ", ".join(f"`{path}`" for path in paths)
        name = f"not in the paper: {entry.paper}" if entry.category == OWN else entry.paper
        lines.append(f"| {name} | `{experiment.snakemake_command(entry.module)}` | {files} | {inputs} |")
    lines += ["", "## Drawing alone", "```"]
    lines += [entry.command(experiment, folder, folder) for entry in ENTRIES]
    return "\n".join([*lines, "```", ""])


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: write the page."""
    parser = argparse.ArgumentParser(description="Write the index of tables and figures.")
    parser.add_argument("--scale", default="paper-tiny")
    parser.add_argument("--output", type=Path, default=Path("docs/paper_index.md"))
    options = parser.parse_args(arguments)
    write_text(options.output, page(options.scale))
    return [options.output]


if __name__ == "__main__":
    command.run(main)
