"""Rows of a data source, from JSON lines, Parquet or the hub: one by one, so that no source has to fit in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sbd import hub
from sbd.errors import UserError
from sbd.files import is_file_name

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Rows:
    """An opened source. ``where`` names it in messages; ``origin`` is what a manifest keeps of it.

    Either files, or a data set of the hub at the commit that its revision meant when it was opened.
    """

    where: str
    origin: dict[str, Any]
    files: list[Path] = field(default_factory=list)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """The rows from number ``start`` on, before ``stop``; a damaged file is a UserError that names the place."""
        rows = self._of_files(start) if self.files else self._of_hub(start)
        return islice(rows, None if stop is None else max(0, stop - start))

    def _of_files(self, skip: int) -> Iterator[Row]:
        for path in self.files:
            reader = _parquet_rows if path.suffix == ".parquet" else _json_rows
            for number, row in reader(path, skip):
                if not isinstance(row, dict):
                    raise UserError(f"{path}, row {number}: a row is an object with columns; this one is not")
                yield row
            skip = max(0, skip - _count(path)) if skip else 0

    def _of_hub(self, start: int) -> Iterator[Row]:
        from datasets import load_dataset

        of = self.origin
        try:
            rows = load_dataset(
                of["name"], of["configuration"], split=of["split"], revision=of["commit"], streaming=True
            )
            yield from rows.skip(start) if start else rows
        except Exception as error:  # whatever the hub's client raises, the remedy is the same
            raise hub.unreachable(self.where, "", error) from None


def open_rows(
    name: str,
    folder: str | Path,
    *,
    split: str = "train",
    revision: str = "main",
    what: str = "a source",
    pins: Path | None = None,
) -> Rows:
    """The source ``name``: a file, folder or pattern below ``folder``, or ``owner/name[:configuration]`` of the hub.

    pins: where it is kept which commit a revision means, see :mod:`sbd.hub`.

    Raises UserError for files that are not there, and for a hub that cannot be reached; ``what`` says whose they are.
    """
    path = Path(folder) / Path(name).expanduser()
    files = find_files(path)
    if files:
        # By content: a copy of the same file is the same data, and a training on it goes on.
        kept = [{"file": p.name, "bytes": p.stat().st_size, "sha256": _digest(p)} for p in files]
        return Rows(str(path), {"files": kept}, files)
    if path.is_dir():
        raise UserError(f"the folder {path} holds no file of a known kind ({', '.join(SUFFIXES)}); put the data there")
    if is_file_name(name):
        raise UserError(
            f"no such data file: {path} ({what}); put it there, or name the folder it lies in: "
            "`make gsm8k DATA=FOLDER`, `snakemake --config data=FOLDER`, `python -m sbd VERB --data FOLDER`"
        )
    dataset, _, configuration = name.partition(":")
    of = {"name": dataset, "configuration": configuration or None, "split": split, "revision": revision}
    return Rows(f"{name}, split {split} (hub)", {**of, "commit": hub.dataset_commit(dataset, revision, pins)})


def check_columns(rows: Rows, wanted: Sequence[str]) -> None:
    """Refuse a source that is empty, or whose first row lacks a column."""
    first = next(rows.read(), None)
    if first is None:
        raise UserError(f"{rows.where} holds no row; make or copy it again")
    missing = [name for name in wanted if name not in first]
    if missing:
        raise UserError(
            f"{rows.where} has no column {' and no '.join(missing)}; it has {', '.join(sorted(first))}. "
            "Is this the right data set, configuration and format?"
        )


def find_files(path: Path) -> list[Path]:
    """The files that a path, folder or pattern means, in order of name; none where it is of the hub or not there."""
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise UserError(f"{path}: only JSON lines and Parquet are read ({', '.join(SUFFIXES)}); convert the file")
        return [path]
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
    if any(sign in path.name for sign in "*?["):
        return sorted(p for p in path.parent.glob(path.name) if p.suffix in SUFFIXES)
    return []


def _json_rows(path: Path, skip: int) -> Iterator[tuple[int, Any]]:
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if number <= skip:
                continue
            try:
                row = json.loads(line.decode("utf-8"))
            except ValueError as error:  # of JSON or of UTF-8
                reason = error.msg if isinstance(error, json.JSONDecodeError) else error
                raise UserError(
                    f"{path}, line {number}: not JSON ({reason}); is the file cut off? copy it again"
                ) from None
            yield number, row


def _parquet_rows(path: Path, skip: int) -> Iterator[tuple[int, Any]]:
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    try:
        file = parquet.ParquetFile(path)
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            if number + size <= skip:
                number += size
                continue
            for batch in file.iter_batches(batch_size=256, row_groups=[group]):
                for row in batch.to_pylist():
                    number += 1
                    if number > skip:
                        yield number, row
    except (pa.ArrowException, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{path}: not readable as Parquet ({first}); is the file cut off? copy it again") from None


def _count(path: Path) -> int:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return int(parquet.ParquetFile(path).metadata.num_rows)
    with open(path, "rb") as lines:
        return sum(1 for _ in lines)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
