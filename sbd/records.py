"""The record of one evaluation: its schema, where the numbers come from, and the table made of many records.

Reads and writes JSON and CSV only; nothing here needs torch.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sbd import columns
from sbd.errors import UserError
from sbd.files import write_json, write_text
from sbd.statistics import wilson

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"
GENERATIONS_NAME = "generations.jsonl"

PACKAGES = ("torch", "transformers", "tokenizers", "lm_eval", "numpy", "sbd")


class _Strict(BaseModel):
    """Unknown keys are mistakes; NaN and infinity are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Key(_Strict):
    """What a record is of. No two records of a scale have the same key."""

    scale: str = Field(min_length=1)
    model: str = Field(min_length=1)
    run: str = Field(min_length=1)
    decoder: str = Field(min_length=1)
    benchmark: str = Field(min_length=1)
    seed: int = 0

    def path(self, results: str | Path = "results") -> Path:
        """Where the record of this key lies."""
        return Path(results, self.scale, "records", self.model, self.run, self.decoder, self.benchmark, RECORD_NAME)


class Provenance(_Strict):
    """What made the numbers: code, inputs, packages, machine."""

    git_revision: str
    git_dirty: bool | None
    config_hash: str
    task_hash: str
    data_hash: str
    checkpoint_hash: str
    packages: dict[str, str]
    python: str
    device: str
    threads: int
    dtype: str
    date: str


class Record(_Strict):
    """One evaluation. ``score`` and its interval are in percent, over ``n`` problems.

    Tokens and passes are sums over the problems, counted to the end of each solution, prefill apart.
    ``tokens_per_forward`` is the ratio of the sums, ``mean_tokens_per_forward`` the mean of the problems' own ratios;
    both are None for a likelihood task, which generates nothing. ``seconds`` is the wall time of generating, at
    ``batch_size``; ``truncated`` counts the solutions that reached the limit of new tokens.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    key: Key
    n: int = Field(ge=1)
    score: float = Field(ge=0, le=100)
    score_low: float = Field(ge=0, le=100)
    score_high: float = Field(ge=0, le=100)
    interval: Literal["wilson"] = "wilson"
    metric: str
    outcomes: dict[str, int] = {}
    decoder_settings: dict[str, Any]
    generation_settings: dict[str, Any] = {}
    batch_size: int = Field(ge=1)
    tokens: int = Field(ge=0)
    forward_passes: int = Field(ge=0)
    prefill_passes: int = Field(ge=0)
    tokens_per_forward: float | None
    mean_tokens_per_forward: float | None
    seconds: float = Field(ge=0)
    tokens_per_second: float | None
    truncated: int = Field(ge=0)
    first_prompt_ids: list[int] = []
    provenance: Provenance

    @model_validator(mode="after")
    def _interval_holds_the_score(self) -> Record:
        if not self.score_low <= self.score <= self.score_high:
            raise ValueError(f"the score {self.score} lies outside its interval {self.score_low} to {self.score_high}")
        return self

    def row(self) -> dict[str, Any]:
        """The record flat, with the columns of table 1 first."""
        flat = {**self.key.model_dump(), **self.model_dump(exclude={"key", "provenance"})}
        return {**{name: flat[name] for name in columns.RECORDS}, **flat}


def summarise(lines: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The counted fields of a record from the lines of generations.jsonl (see sbd.evaluation); raises for no lines."""
    if not lines:
        raise UserError("no problem was evaluated; is the test file empty or the limit 0?")
    correct = [float(line["correct"]) for line in lines]
    interval = wilson(sum(correct), len(lines)).times(100)
    tokens = sum(line["tokens"] for line in lines)
    passes = sum(line["forward_passes"] for line in lines)
    ratios = [line["tokens"] / line["forward_passes"] for line in lines if line["forward_passes"]]
    outcomes: dict[str, int] = {}
    for line in lines:
        if line.get("outcome"):
            outcomes[line["outcome"]] = outcomes.get(line["outcome"], 0) + 1
    return {
        "n": len(lines),
        "score": interval.estimate,
        "score_low": interval.low,
        "score_high": interval.high,
        "outcomes": dict(sorted(outcomes.items())),
        "tokens": tokens,
        "forward_passes": passes,
        "prefill_passes": sum(line["prefill_passes"] for line in lines),
        "tokens_per_forward": tokens / passes if passes else None,
        "mean_tokens_per_forward": sum(ratios) / len(ratios) if ratios else None,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if tokens and seconds > 0 else None,
        "truncated": sum(bool(line["truncated"]) for line in lines),
    }


def provenance(
    *,
    device: str,
    dtype: str,
    threads: int,
    config_hash: str = "",
    task: str | Path | None = None,
    data: str | Path | None = None,
    checkpoint: str | Path | None = None,
) -> Provenance:
    """What can be known of this process and its inputs. Paths are hashed, not kept: records may be published."""
    revision, dirty = _git()
    return Provenance(
        git_revision=revision,
        git_dirty=dirty,
        config_hash=config_hash,
        task_hash=_hash_file(task),
        data_hash=_hash_file(data),
        checkpoint_hash=_hash_checkpoint(checkpoint),
        packages={name: version for name in PACKAGES if (version := _version(name))},
        python=platform.python_version(),
        device=device,
        threads=threads,
        dtype=dtype,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def write_record(record: Record, path: str | Path) -> None:
    """Write a record atomically; it is the last file of an evaluation, so that its presence means the end."""
    write_json(path, record.model_dump(mode="json"))


def _make(path: Path) -> str:
    return f"snakemake --cores 1 {path} --config experiment=FILE"


def read_record(path: str | Path, make: Callable[[Path], str] = _make) -> Record:
    """Read and check a record; every fault is a UserError that names the file and how to make it again.

    make: the command that makes a record, such as ``Experiment.snakemake_command``.
    """
    path = Path(path)
    remedy = f"delete it and run `{make(path)}`"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no record at {path}; run `{make(path)}` to make it") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not JSON ({error}); {remedy}") from None
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        raise UserError(f"{path} has schema version {version!r}, this code reads {SCHEMA_VERSION}; {remedy}")
    try:
        return Record.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "record"
        raise UserError(f"{path}: {where}: {first['msg']} (got {str(first.get('input'))[:80]}); {remedy}") from None


def collect(
    records: str | Path | Iterable[str | Path],
    expected: Iterable[Key] | None = None,
    make: Callable[[Path], str] = _make,
) -> list[dict[str, Any]]:
    """Rows (see Record.row) of all records of a folder or of a list of files.

    With ``expected`` the rows are those of these keys, in that order; ``make`` as in read_record. Raises UserError
    for a record that is missing, damaged, of another schema version, twice there, or of another key than its path says.
    """
    if isinstance(records, (str, Path)):
        paths = sorted(Path(records).rglob(RECORD_NAME))
        where = str(records)
    else:
        paths = [Path(path) for path in records]
        where = "the list of records"
    if not paths:
        raise UserError(f"no records in {where}; run the evaluations first: `snakemake --config experiment=FILE`")
    found: dict[Key, tuple[Path, Record]] = {}
    for path in paths:
        record = read_record(path, make)
        _check_place(path, record.key)
        if record.key in found:
            raise UserError(f"{path} and {found[record.key][0]} are records of the same evaluation; delete one of them")
        found[record.key] = (path, record)
    if expected is None:
        return [record.row() for _, record in found.values()]
    rows = []
    for key in expected:
        if key not in found:
            raise UserError(f"no record of {_name(key)} in {where}; run `{make(key.path())}`")
        rows.append(found[key][1].row())
    return rows


def write_csv(rows: Sequence[dict[str, Any]], path: str | Path, names: Sequence[str] = columns.RECORDS) -> None:
    """Write the columns ``names`` of ``rows`` as CSV; None is an empty field, floats keep six significant digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([format(row[name], ".6g") if isinstance(row[name], float) else row[name] for name in names])
    write_text(path, text.getvalue())


def _check_place(path: Path, key: Key) -> None:
    """A record that lies at records/model/run/decoder/benchmark/record.json must be of these names."""
    parts = path.parts
    if len(parts) >= 6 and parts[-6] == "records":
        names = (key.model, key.run, key.decoder, key.benchmark)
        if parts[-5:-1] != names:
            raise UserError(f"{path} is the record of {_name(key)}; it was moved or copied there, delete it")


def _name(key: Key) -> str:
    return f"model {key.model}, run {key.run}, decoder {key.decoder}, benchmark {key.benchmark}, seed {key.seed}"


def _git() -> tuple[str, bool | None]:
    """Revision of the source tree and whether tracked files differ from it; unknown for an installed package."""

    def ask(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        return ask("rev-parse", "HEAD"), bool(ask("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "unknown", None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return getattr(sys.modules.get(package), "__version__", None)


def _hash_file(path: str | Path | None) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path and Path(path).is_file() else ""


def _hash_checkpoint(folder: str | Path | None) -> str:
    """A hash over the names and contents of a checkpoint's files; empty for a hub id."""
    if folder is None or not Path(folder).is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.is_file():
            digest.update(path.name.encode())
            with open(path, "rb") as handle:
                while chunk := handle.read(1 << 24):
                    digest.update(chunk)
    return digest.hexdigest()[:16]
