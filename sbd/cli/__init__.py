"""The command line: ``python -m sbd VERB``, one verb per step of the workflow.

Nothing heavy is imported before a verb runs, so that help and mistakes answer at once. A mistake of the user ends with
one line on the error stream and exit status 2.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

from sbd.cli.parser import build_parser
from sbd.errors import UserError, UserNote, of_the_place
from sbd.experiment_files import load_experiment
from sbd.interruption import STOPPED, Stopped

__all__ = ["build_parser", "main"]


_plain_warning = warnings.formatwarning


def _one_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """How warnings of our own are written; those of others keep the place that they come from."""
    if issubclass(category, UserNote):
        return f"sbd: warning: {message}\n"
    return _plain_warning(message, category, *where, **more)


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0, 2 after a mistake of the user, 75 when it was stopped and saved."""
    options = build_parser().parse_args(arguments)
    warnings.formatwarning = _one_line
    try:
        experiment = load_experiment(options.experiment)
        return options.handler(experiment, options) or 0
    except UserError as error:
        status, message = 2, f"error: {' '.join(str(error).split())}"
    except OSError as error:
        if (said := of_the_place(error)) is None:
            raise
        status, message = 2, f"error: {said}"
    except Stopped as stopped:
        status, message = STOPPED, f"{stopped}; the same command goes on from there"
    except KeyboardInterrupt:
        status, message = 130, "interrupted; nothing half-made is left, and the same command may be given again"
    # Outside the handlers, where the failed step and its progress bar are gone: this is the last line.
    # Of ranks that fail alike the first speaks; it ends the others while they wait.
    if int(os.environ.get("RANK", 0)):
        if status == STOPPED:
            return status  # all of them were; the first says so
        time.sleep(3)
    print(f"sbd {options.verb}: {message}", file=sys.stderr)
    return status
