"""Where the checkpoint of a run of an experiment is."""

from __future__ import annotations

from pathlib import Path

from sbd.config import Experiment
from sbd.errors import UserError


def trained_checkpoint(experiment: Experiment, model: str, run: str) -> Path:
    """The checkpoint folder of a trained run; one that is not there is a UserError."""
    checkpoint = experiment.run_folder(model, run) / "checkpoint"
    if not (checkpoint / "config.json").is_file():
        raise UserError(f"run {run!r} of {model!r} has no checkpoint at {checkpoint}; train it first")
    return checkpoint
