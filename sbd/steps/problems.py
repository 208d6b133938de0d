"""``problems``: the split files of a source, made by a generator or read from local files or the hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sbd import problems
from sbd.config import Experiment, SourceConfig
from sbd.errors import UserError
from sbd.files import write_text
from sbd.problems import gsm8k

Problem = dict[str, Any]

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_FILE = re.compile(r"\.(jsonl?|parquet|csv)$|^[./~]")


def run(experiment: Experiment, source: str, data: str | Path) -> None:
    """Write ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` of a source; relative files lie below ``data``."""
    config = experiment.data.sources[source]
    if config.generator:
        splits = problems.split(
            config.generator,
            experiment.seed,
            train=_count(config.train),
            validation=_count(config.validation),
            test=_count(config.test),
        )
    else:
        splits = _read_splits(source, config, Path(data))
    for split, found in splits.items():
        write_text(
            experiment.source_file(source, split), "".join(f"{json.dumps(p, ensure_ascii=False)}\n" for p in found)
        )
    print(f"{source}: " + ", ".join(f"{len(found)} {split}" for split, found in splits.items()))


def _count(value: int | str) -> int:
    assert isinstance(value, int), "the schema allows counts only"
    return value


def _read_splits(source: str, config: SourceConfig, data: Path) -> dict[str, list[Problem]]:
    train = _read(source, config, "train", data)
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
        validation = _read(source, config, "validation", data)
    return {"train": train, "validation": validation, "test": _read(source, config, "test", data)}


def _read(source: str, config: SourceConfig, split: str, data: Path) -> list[Problem]:
    name = str(getattr(config, split))
    path = data / Path(name).expanduser()
    if path.is_file():
        rows = _read_lines(path)
        where = str(path)
    elif _FILE.search(name) or name.count("/") > 1:
        raise UserError(
            f"no such data file: {path} ({split} of source {source!r}); put it there, or name the folder it lies in: "
            "`make gsm8k DATA=FOLDER`, `snakemake --config data=FOLDER`, `python -m sbd problems --data FOLDER`"
        )
    else:
        rows = _read_hub(name, split, config)
        where = f"{name} (hub)"
    if not rows:
        raise UserError(f"{where} holds no problem; make or copy it again")
    if config.format == "gsm8k":
        # Calculator annotations (48/2 = <<48/2=24>>24) are taken out: they belong to a tool that no model here has, and
        # they say each result twice, which would flatter every decoder that reveals several tokens at a time.
        converted = gsm8k.convert(rows, f"{source}-{split}")
        return [{**problem, "solution": _CALCULATOR.sub("", problem["solution"])} for problem in converted]
    return [
        _checked(row, f"{source}-{split}-{number}", f"{where}, line {number}") for number, row in enumerate(rows, 1)
    ]


def _read_lines(path: Path) -> list[Any]:
    if path.suffix not in (".jsonl", ".json"):
        raise UserError(f"{path}: only JSON lines are read, one problem a line; convert the file to .jsonl")
    rows = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise UserError(
                    f"{path}, line {number}: not JSON ({error.msg}); is the file cut off? copy it again"
                ) from None
    return rows


def _read_hub(name: str, split: str, config: SourceConfig) -> list[Any]:
    """``owner/name`` or ``owner/name:configuration`` of the hub."""
    from datasets import load_dataset

    path, _, configuration = name.partition(":")
    if config.format == "gsm8k":
        configuration = configuration or "main"
    try:
        return list(load_dataset(path, configuration or None, split=split))
    except Exception as error:  # whatever the hub's client raises, the remedy is the same
        raise UserError(
            f"{name!r} is no file and could not be read from the hub ({type(error).__name__}: {error}); "
            "check the name and the network, or give the path of a local .jsonl file"
        ) from None


def _checked(row: Any, id: str, where: str) -> Problem:
    for key in ("prompt", "solution"):
        if not isinstance(row, dict) or not isinstance(row.get(key), str) or not row[key].strip():
            raise UserError(f"{where}: {key} missing or empty; each problem needs a text there")
    return {"id": id, **row}
