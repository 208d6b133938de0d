"""``problems``: the split files of a source, made by a generator or read from local files or the hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sbd import problems
from sbd.config import Experiment, SourceConfig
from sbd.errors import UserError
from sbd.files import half_character, is_file_name, write_text
from sbd.problems import gsm8k
from sbd.sources import Rows, check_columns, open_rows

Problem = dict[str, Any]

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_IDS = ("id", "question_id", "task_id", "unique_id")


def run(experiment: Experiment, source: str, data: str | Path) -> None:
    """Write ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` of a source; relative files lie below ``data``."""
    config, data, pins = experiment.data.sources[source], Path(data), experiment.revisions_folder
    if config.streamed:
        raise UserError(f"source {source!r} is streamed, so there is no file of its problems to make; run `prepare`")
    if config.format == "benchmark":
        splits = {"train": [], "validation": [], "test": _benchmark(source, config, data, pins)}
    elif config.generator:
        splits = problems.split(
            config.generator,
            experiment.seed,
            train=_count(config.train),
            validation=_count(config.validation),
            test=_count(config.test),
        )
    else:
        splits = _read_splits(source, config, data, pins)
    for split, found in splits.items():
        write_text(
            experiment.source_file(source, split),
            "".join(f"{json.dumps(p, ensure_ascii=False, default=str)}\n" for p in found),
        )
    print(f"{source}: " + ", ".join(f"{len(found)} {split}" for split, found in splits.items()))


def _count(value: int | str | None) -> int:
    assert isinstance(value, int), "the schema allows counts only"
    return value


def _read_splits(source: str, config: SourceConfig, data: Path, pins: Path) -> dict[str, list[Problem]]:
    train = _read(source, config, "train", data, pins)
    if isinstance(config.validation, int):
        # The end of the training file, so that a larger count only moves the boundary.
        if config.validation >= len(train):
            raise UserError(
                f"source {source!r}: validation takes {config.validation} of {len(train)} training problems; "
                "nothing is left to train on; lower it"
            )
        boundary = len(train) - config.validation
        train, validation = train[:boundary], train[boundary:]
    else:
        validation = _read(source, config, "validation", data, pins)
    return {"train": train, "validation": validation, "test": _read(source, config, "test", data, pins)}


def _read(source: str, config: SourceConfig, split: str, data: Path, pins: Path) -> list[Problem]:
    rows = _open(source, config, split, data, pins)
    found = list(_whole(rows))
    if not found:
        raise UserError(f"{rows.where} holds no problem; make or copy it again")
    if config.format == "gsm8k":
        # Calculator annotations (48/2 = <<48/2=24>>24) are taken out: they belong to a tool that no model here has, and
        # they say each result twice, which would flatter every decoder that reveals several tokens at a time.
        converted = gsm8k.convert(found, f"{source}-{split}")
        return [{**problem, "solution": _CALCULATOR.sub("", problem["solution"])} for problem in converted]
    return [
        _checked(row, f"{source}-{split}-{number}", f"{rows.where}, line {number}")
        for number, row in enumerate(found, 1)
    ]


def _open(source: str, config: SourceConfig, split: str, data: Path, pins: Path) -> Rows:
    name = str(getattr(config, split))
    if config.format == "gsm8k" and ":" not in name and not is_file_name(name) and not (data / name).exists():
        name += ":main"
    of_hub = config.split or split
    what = f"{split} of source {source!r}"
    rows = open_rows(name, data, split=of_hub, revision=config.revision, what=what, pins=pins)
    if "commit" in rows.origin:
        print(f"{source}, {split}: {rows.where} at commit {rows.origin['commit']}")
    return rows


def _whole(rows: Rows) -> Iterator[Problem]:
    """The rows; text that no tokenizer takes is refused here, where its source can be named."""
    for number, row in enumerate(rows.read(), 1):
        if half := half_character(row):
            raise UserError(f"{rows.where}, row {number}: {half} is half of a character; take it out of the text")
        yield row


def _benchmark(source: str, config: SourceConfig, data: Path, pins: Path) -> list[Problem]:
    """Rows as they were published, each with an id, within the dates; another number than is expected is refused."""
    rows = _open(source, config, "test", data, pins)
    found = [
        {**row, "id": str(next((row[key] for key in _IDS if row.get(key) is not None), f"{source}-{number}"))}
        for number, row in enumerate(_whole(rows))
    ]
    within = ""
    if config.dates is not None:
        check_columns(rows, ["contest_date"])
        first, last = (day.isoformat() for day in config.dates)
        found = [row for row in found if first <= str(row["contest_date"])[:10] <= last]
        within = f" from {first} to {last}"
    if not found:
        raise UserError(f"{rows.where} holds no problem{within}; make or copy it again")
    if config.expected is not None and len(found) != config.expected:
        raise UserError(
            f"{rows.where} holds {len(found)} problems{within}, not the {config.expected} of source {source!r}; "
            "is it another version or a part of it? Change `expected` (and `dates`) if that is meant"
        )
    return found


def _checked(row: Any, id: str, where: str) -> Problem:
    for key in ("prompt", "solution"):
        if not isinstance(row, dict) or not isinstance(row.get(key), str) or not row[key].strip():
            raise UserError(f"{where}: {key} missing or empty; each problem needs a text there")
    return {"id": id, **row}
