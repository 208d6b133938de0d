"""The command line that the modules share: options, and one clear line for a mistake of the user."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sbd.errors import UserError, of_the_place

Section = TypeVar("Section")


def parser(description: str | None, experiment: bool = True, **inputs: str) -> argparse.ArgumentParser:
    """``--experiment``, one required option per keyword of ``inputs`` (name=help), ``--output`` and ``--partial``."""
    summary = (description or "").split("\n\n")[0]
    found = argparse.ArgumentParser(description=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    if experiment:
        found.add_argument("--experiment", required=True, type=Path, help="experiment file, for names and labels")
    for name, text in inputs.items():
        found.add_argument(f"--{name.replace('_', '-')}", required=True, type=Path, help=text)
    found.add_argument("--output", required=True, type=Path, help="folder for the files")
    found.add_argument(
        "--partial", action="store_true", help="use what there is when jobs are missing, and say so in it"
    )
    return found


def run(main: Callable[[], list[Path]]) -> None:
    """Call ``main`` and print the files that it wrote; a mistake of the user becomes one line and status 2."""
    try:
        paths = main()
    except (UserError, OSError) as error:
        said = of_the_place(error) if isinstance(error, OSError) else error
        if said is None:
            raise
        print(f"error: {said}", file=sys.stderr)
        raise SystemExit(2) from None
    for path in paths:
        print(path)


def required(section: Section | None, name: str, path: str | Path) -> Section:
    """The section of a figure. Raises UserError where the experiment has none."""
    if section is None:
        raise UserError(f"{path}: no figures.{name}; add it (see sbd/selection.py) to draw this")
    return section


def partial_warning(missing: list[str]) -> str | None:
    """What a table or figure says when jobs are missing from it."""
    if not missing:
        return None
    names = ", ".join(missing[:3]) + (" and others" if len(missing) > 3 else "")
    return f"PARTIAL: {len(missing)} evaluations are missing ({names})"
