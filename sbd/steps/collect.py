"""``collect``: the records of all evaluations, and the held-out losses of all runs, as one CSV file each."""

from __future__ import annotations

import json
from typing import Any

from sbd.config import Experiment
from sbd.errors import UserError
from sbd.records import Key, collect, write_csv

LOSS_COLUMNS = ("model", "run", "parameters", "steps", "ntp_loss", "ntp_tokens", "block_loss", "block_tokens")


def run(experiment: Experiment) -> None:
    """Write ``records.csv`` and ``losses.csv``; what is missing, damaged or of another evaluation is refused."""
    keys = [
        Key(scale=experiment.scale, model=model, run=run, decoder=decoder, benchmark=benchmark, seed=experiment.seed)
        for model, run, decoder, benchmark in experiment.jobs()
    ]
    rows = collect([key.path() for key in keys], keys)
    losses = [held_out_losses(experiment, model, run) for model in experiment.models for run in experiment.runs]
    write_csv(losses, experiment.folder / "losses.csv", LOSS_COLUMNS)
    path = experiment.folder / "records.csv"
    write_csv(rows, path)
    print(f"{path}: {len(rows)} evaluations")


def held_out_losses(experiment: Experiment, model: str, run: str) -> dict[str, Any]:
    """Losses in nats per token on the validation split, from the summary that training leaves in the checkpoint."""
    path = experiment.run_folder(model, run) / "checkpoint" / "training.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        found = {"model": model, "run": run, "parameters": summary["parameters"], "steps": summary["steps"]}
    except FileNotFoundError:
        raise UserError(f"no training summary at {path}; run `snakemake {path}` to make it") from None
    except (json.JSONDecodeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run `snakemake {path}`") from None
    return {**dict.fromkeys(LOSS_COLUMNS), **found, **summary.get("validation", {})}
