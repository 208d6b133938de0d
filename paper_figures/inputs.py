"""Read the CSV files that figures are made of; what is missing or impossible stops with the name of the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sbd import columns
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.selection import Arm

KEY = list(columns.JOB)
COLUMNS = list(columns.RECORDS)
SPEEDS = ["tokens_per_forward", "tokens_per_second"]


def collect(experiment: Experiment | None) -> str:
    """What to run for the CSV files of an experiment."""
    return f"run `{experiment.command('collect') if experiment else 'python -m sbd collect --experiment FILE'}`"


def read_csv(
    path: str | Path, names: Sequence[str], text: Sequence[str], how: str, empty: Sequence[str] = ()
) -> pd.DataFrame:
    """A CSV file with at least the columns ``names``; those not in ``text`` are finite numbers. Raises UserError.

    how: what to run to get the file, for the error message. empty: columns that may have empty fields, which become
    NaN; the text "nan" in them is not an empty field.
    """
    path = Path(path)
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise UserError(f"no such file: {path}; {how}") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a CSV file ({' '.join(str(error).split())}); {how}") from None
    if missing := [name for name in names if name not in frame.columns]:
        raise UserError(f"{path}: column {', '.join(missing)} is missing; {how}")
    for name in names:
        blank = (frame[name] == "").to_numpy()
        frame[name] = frame[name].mask(blank) if name in text else pd.to_numeric(frame[name], errors="coerce")
        values = frame[name].to_numpy()
        bad = pd.isna(values) if name in text else ~np.isfinite(values.astype(float))
        if name in empty:
            bad = bad & ~blank
        if bad.any():
            raise UserError(f"{path}, line {int(np.flatnonzero(bad)[0]) + 2}: {name} is not a value; {how}")
    return frame


def read_records(path: str | Path, experiment: Experiment | None = None) -> pd.DataFrame:
    """The rows of ``records.csv``, one per evaluation, checked. Raises UserError, which names what to run.

    A likelihood task generates nothing, so its tokens per forward and per second are NaN.
    """
    frame = read_csv(path, COLUMNS, KEY, collect(experiment), empty=SPEEDS)
    frame["n"] = frame["n"].astype(int)

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            job = "/".join(frame[KEY].to_numpy()[bad][0])
            raise UserError(f"{path}: {what} for {job}; delete that record and evaluate it again")

    n, score, low, high, speed = (
        frame[name].to_numpy() for name in ("n", "score", "score_low", "score_high", "tokens_per_forward")
    )
    refuse(np.asarray(frame.duplicated(KEY)), "two rows")
    refuse(n <= 0, "zero problems")
    refuse(
        ~((low >= 0) & (low <= score) & (score <= high) & (high <= 100)),
        "a score without 0 <= low <= score <= high <= 100",
    )
    refuse(speed <= 0, "tokens per forward of zero or less")
    return frame


def read_differences(path: str | Path, experiment: Experiment | None = None) -> pd.DataFrame:
    """The rows of ``differences.csv``, indexed by the pair that each compares. Raises UserError."""
    empty = [*columns.SPEED, "p_value"]
    return _indexed(path, columns.DIFFERENCES, columns.PAIR, columns.PAIR, empty, experiment)


def read_contrasts(path: str | Path, experiment: Experiment | None = None) -> pd.DataFrame:
    """The rows of ``contrasts.csv``, indexed by what each is of. Raises UserError."""
    empty = ["against", "difference", "low", "high", *columns.PASSES]
    return _indexed(path, columns.CONTRASTS, columns.CONTRAST, [*columns.CONTRAST, "against"], empty, experiment)


def _indexed(
    path: str | Path,
    names: Sequence[str],
    key: Sequence[str],
    text: Sequence[str],
    empty: Sequence[str],
    experiment: Experiment | None,
) -> pd.DataFrame:
    frame = read_csv(path, names, text, collect(experiment), empty=empty)
    if frame.duplicated(list(key)).any():
        raise UserError(f"{path}: two rows of one key; {collect(experiment)}")
    frame["n"] = frame["n"].astype(int)
    return frame.set_index(list(key))


Pair = tuple[str, str, str, str, str, str]


def difference(
    differences: pd.DataFrame, experiment: Experiment, pair: Pair, missing: list[str] | None = None
) -> dict[str, Any] | None:
    """The row of a pair (see ``columns.PAIR``); None where the experiment does not ask for both of its sides.

    Where it asks and there is no row this raises UserError; with a list ``missing`` (``--partial``) the name of the
    pair is put there instead, and the answer is None.
    """
    model, benchmark, run, decoder, baseline_run, baseline_decoder = pair
    sides = {(model, run, decoder, benchmark), (model, baseline_run, baseline_decoder, benchmark)}
    if not sides <= set(experiment.jobs()):
        return None
    return _row(differences, pair, "differences.csv", experiment, missing)


def contrast(
    contrasts: pd.DataFrame, experiment: Experiment, key: tuple[str, ...], missing: list[str] | None = None
) -> dict[str, Any] | None:
    """The row of a contrast (see ``columns.CONTRAST``) that the experiment asks for; ``missing`` as in difference."""
    return _row(contrasts, key, "contrasts.csv", experiment, missing)


def _row(
    frame: pd.DataFrame, key: tuple[str, ...], file: str, experiment: Experiment, missing: list[str] | None
) -> dict[str, Any] | None:
    if key in frame.index:
        return row_at(frame, key)
    if missing is None:
        raise UserError(
            f"{file} has no row of {'/'.join(key)}; {collect(experiment)}, or take what there is with --partial"
        )
    missing.append("/".join(key))
    return None


def rows_of(
    records: pd.DataFrame,
    experiment: Experiment,
    arms: Iterable[Arm],
    partial: bool = False,
    benchmarks: Sequence[str] | None = None,
    speed: bool = True,
    complete: bool = False,
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of some arms in the order model, arm, benchmark, and the jobs among them that have no row.

    Takes the jobs that the experiment asks for, on ``benchmarks`` (all by default; with ``speed`` those alone that
    generate text); with ``complete`` those of a model and benchmark for which all arms are asked for, so that no panel
    shows half of a comparison. A missing job raises UserError unless ``partial``. All rows of a benchmark must have one
    n, or they would not compare like with like.
    """
    wanted = set(experiment.jobs())
    arms = list(arms)
    jobs = [
        (model, arm.run, arm.decoder, benchmark)
        for model in experiment.models
        for arm in arms
        for benchmark in benchmarks or experiment.benchmarks
        if (model, arm.run, arm.decoder, benchmark) in wanted
    ]
    jobs = list(dict.fromkeys(jobs))
    if complete:
        asked = {(arm.run, arm.decoder) for arm in arms}
        whole = {(m, b) for m, _, _, b in jobs if all((m, *arm, b) in wanted for arm in asked)}
        jobs = [job for job in jobs if (job[0], job[3]) in whole]
    found = records.set_index(KEY, drop=False)
    missing = ["/".join(job) for job in jobs if job not in found.index]
    if missing and not partial:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        model, run, decoder, benchmark = missing[0].split("/")
        raise UserError(
            f"no record of {missing[0]}{more}; "
            f"run `{experiment.evaluate_command(model, run, decoder, benchmark)}` and "
            f"`{experiment.command('collect')}`, or take what there is with --partial"
        )
    rows = found.loc[[job for job in jobs if job in found.index]].reset_index(drop=True)
    if speed:
        rows = rows.loc[rows["tokens_per_forward"].notna()].reset_index(drop=True)
    if rows.empty and not missing:
        what = "a model and benchmark on which all of these arms are" if complete else "any of these arms"
        names = ", ".join(dict.fromkeys(f"{arm.run}/{arm.decoder}" for arm in arms))
        raise UserError(f"{experiment.file} does not evaluate {what} ({names}), with text generated; add it there")
    if rows.empty:
        raise UserError(f"none of the wanted evaluations has a record; run them and then {collect(experiment)[4:]}")
    for benchmark, counts in rows.groupby("benchmark")["n"]:
        if counts.nunique() > 1:
            raise UserError(
                f"benchmark {benchmark}: some rows are over {counts.min()} problems and some over {counts.max()}; "
                "evaluate all of them on the same problems"
            )
    return rows, missing


def where(frame: pd.DataFrame, **equal: object) -> pd.DataFrame:
    """The rows whose columns have these values, in their order."""
    keep = np.ones(len(frame), bool)
    for name, value in equal.items():
        keep &= (frame[name] == value).to_numpy()
    return frame.loc[keep]


def unique(frame: pd.DataFrame, column: str) -> list[str]:
    """The texts of a column, each once, in their order."""
    return [str(value) for value in dict.fromkeys(frame[column])]


def row_at(indexed: pd.DataFrame, key: object) -> dict[str, Any]:
    """The one row of a unique key, column by column."""
    found: Any = indexed.loc[key]  # type: ignore[index]
    return {str(name): value for name, value in found.items()}
