"""Draw every table and figure of a reference run again, from the CSV files that are kept in the repository.

For each folder of ``--reference`` that the file experiments/FOLDER.yaml belongs to; nothing is trained. What cannot be
drawn because its CSV file is not kept, or lacks a record, is named, and the exit status is then 2.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from paper_figures import command, paper_index
from sbd.errors import UserError
from sbd.experiment_files import load_experiment


def rebuild(experiment_file: Path, source: Path, target: Path) -> tuple[list[Path], list[str]]:
    """Draw what the experiment asks for from ``source`` into ``target``; the files, and what was refused and why."""
    done, refused = [], []
    experiment = load_experiment(experiment_file)
    for entry in paper_index.drawn(experiment):
        module = importlib.import_module(f"paper_figures.{entry.module}")
        try:
            done += module.main(entry.arguments(experiment, source, target))
        except UserError as error:
            refused.append(f"{source.name}: {entry.paper} is not drawn: {' '.join(str(error).split())}")
    return done, refused


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: all reference runs -> their tables and figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--reference", type=Path, default=Path("results/reference"), help="default: %(default)s")
    parser.add_argument("--experiments", type=Path, default=Path("experiments"), help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("results/rebuilt"), help="default: %(default)s")
    options = parser.parse_args(arguments)
    done: list[Path] = []
    refused: list[str] = []
    for source in sorted(path for path in options.reference.iterdir() if path.is_dir()):
        paths, problems = rebuild(options.experiments / f"{source.name}.yaml", source, options.output / source.name)
        done, refused = done + paths, refused + problems
    if refused:
        print("\n".join(map(str, done)))
        print("\n".join(refused), file=sys.stderr)
        raise UserError(f"{len(refused)} tables or figures are not drawn; run `make reference` after the experiment")
    return done


if __name__ == "__main__":
    command.run(main)
