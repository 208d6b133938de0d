"""``collect``: records, losses and differences of all runs as one CSV file each, which is all that figures read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from sbd import columns, differences
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.records import Key, collect, write_csv


def run(experiment: Experiment) -> None:
    """Write the CSV files of an experiment; what is missing, damaged or of another evaluation is refused."""
    folder = experiment.folder
    keys = [
        Key(
            scale=experiment.work_scale,
            model=model,
            run=run,
            decoder=decoder,
            benchmark=benchmark,
            seed=experiment.seed,
        )
        for model, run, decoder, benchmark in experiment.jobs()
    ]
    rows = collect([key.path() for key in keys], keys, experiment.snakemake_command)
    losses = [held_out_losses(experiment, model, run) for model, run in experiment.trainings()]
    write_csv(losses, folder / "losses.csv", columns.LOSSES)
    metrics = [line for model, run in experiment.trainings() for line in training_losses(experiment, model, run)]
    write_csv(metrics, folder / "metrics.csv", columns.METRICS)
    problems = differences.reader(experiment)
    compared = differences.collect(experiment, differences.pairs(experiment), problems)
    write_csv(compared, folder / "differences.csv", columns.DIFFERENCES)
    write_csv(differences.contrasts(experiment, problems), folder / "contrasts.csv", columns.CONTRASTS)
    if experiment.figures.matp_loss:
        write_csv(list(masked_losses(experiment)), folder / "matp_loss.csv", columns.MASKED_LOSS)
    path = folder / "records.csv"
    write_csv(rows, path)
    print(f"{path}: {len(rows)} evaluations, {len(compared)} paired differences")


def held_out_losses(experiment: Experiment, model: str, run: str) -> dict[str, Any]:
    """Losses in nats per token on the validation split, from the summary that training leaves in the checkpoint."""
    path = experiment.run_folder(model, run) / "checkpoint" / "training.json"
    remedy = f"run `{experiment.snakemake_command(path)}`"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        found = {"model": model, "run": run, "parameters": summary["parameters"], "steps": summary["steps"]}
        found |= summary.get("validation", {})
        _check_numbers(found, columns.LOSSES[2:])
    except FileNotFoundError:
        raise UserError(f"no training summary at {path}; {remedy} to make it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}); delete it and {remedy}") from None
    return {**dict.fromkeys(columns.LOSSES), **found}


def training_losses(experiment: Experiment, model: str, run: str) -> list[dict[str, Any]]:
    """Losses in nats per token on the training data, at every logged step; block_loss is None without such a term."""
    folder = experiment.run_folder(model, run)
    path = folder / "metrics.jsonl"
    remedy = f"delete {folder} and run `{experiment.snakemake_command(folder / 'checkpoint/training.json')}`"
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [{"model": model, "run": run, **{name: line[name] for name in columns.METRICS[2:]}} for line in lines]
        for row in rows:
            _check_numbers(row, columns.METRICS[2:])
    except FileNotFoundError:
        raise UserError(f"no training losses at {path}; {remedy}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a file of training losses ({type(error).__name__}: {error}); {remedy}"
        ) from None
    if not rows:
        raise UserError(f"{path} is empty; {remedy}")
    return rows


def _check_numbers(row: dict[str, Any], names: Iterable[str]) -> None:
    """Refuse NaN, infinity (which Python reads from JSON) and what is no number; None is what was not measured."""
    for name in names:
        value = row.get(name)
        if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise ValueError(f"{name} is {value!r}, not a number")


def masked_losses(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """The lines of ``masked-loss`` of all runs that the figure shows, checked."""
    for model, run in experiment.masked_losses():
        path = experiment.masked_loss_file(model, run)
        remedy = f"run `{experiment.command('masked-loss', model=model, run=run)}`"
        try:
            with open(path, encoding="utf-8", newline="") as lines:
                rows = list(csv.DictReader(lines))
            for row in rows:
                numbers = [float(row[name]) for name in columns.MASKED_LOSS[2:]]
                if (row["model"], row["run"]) != (model, run) or not all(map(math.isfinite, numbers)):
                    raise ValueError(f"a line of {row['model']}/{row['run']} with {numbers}")
        except FileNotFoundError:
            raise UserError(f"no such file: {path}; {remedy}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged ({type(error).__name__}: {error}); {remedy}") from None
        if not rows:
            raise UserError(f"{path} has no lines; {remedy}")
        yield from rows
