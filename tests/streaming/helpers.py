"""An experiment of a few conversations from local files, and its data step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyarrow import parquet

from sbd.cli import main
from sbd.data import PackedRows
from sbd.experiment_files import load_experiment
from sbd.steps import prepare, streams
from tests.cli.helpers import EXPERIMENT
from tests.conftest import CHAT_TEMPLATE

QUESTION = "Tom has twelve apples and gives three of them to each of his two friends today , how many are left ?"


MATH = [
    {
        "problem": f"Mia has {n} apples . Count them .",
        "generated_solution": f"<think>\nOne by one .\n</think>\nThe answer is {n} .",
    }
    for n in range(9)
]


CODE = [
    {"input": f"Print {n} .", "output": f"<think>\nEasy .\n</think>\n```python\nprint({n})\n```"} for n in range(30, 36)
]


CHAT = [
    {
        "messages": [
            {"role": "system", "content": "Be brief ."},
            {"role": "user", "content": f"Is {n} a number ?"},
            {"role": "assistant", "content": "Yes ."},
            {"role": "user", "content": "Sure ?"},
            {"role": "assistant", "content": f"I am sure that {n} is ."},
        ]
    }
    for n in range(50, 55)
]


def parquet_file(path: Path, rows: list[dict]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)


def jsonl(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write(sources: dict[str, Any] | None = None, **data: Any) -> None:
    found = {
        "math": {"format": "open_math_reasoning", "train": "math.parquet", "weight": 2, "validation": 2},
        "code": {"format": "open_code_reasoning", "train": "code.jsonl", "weight": 1},
        "chat": {"format": "conversations", "train": "chat.parquet", "weight": 1},
        "words": {"format": "benchmark", "test": "test.jsonl", "expected": 2},
    }
    for name, changes in (sources or {}).items():
        found[name] = {**found.get(name, {}), **changes}
    experiment = {
        **EXPERIMENT,
        "tokenizer": {"path": "tokenizer", "chat_template": str(CHAT_TEMPLATE)},
        "data": {"sequence_length": 160, "too_long": "drop", "sources": found, **data},
    }
    Path("mini.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))


def run(workers: int = 1, piece: int = 4) -> dict[str, Any]:
    experiment = load_experiment("mini.yaml")
    assert main(["problems", "--experiment", "mini.yaml", "--source", "words"]) == 0
    tokenizer = prepare.load_tokenizer(experiment.tokenizer, experiment.revisions_folder)
    streams.run(experiment, tokenizer, None, "data", workers, piece)
    return json.loads(Path("results/mini/data/train/manifest.json").read_text())


def documents(split: str = "train", unique: bool = True) -> list[Any]:
    rows = PackedRows(f"results/mini/data/{split}")
    found = [document for index in range(len(rows)) for document in rows[index]]
    return list({d.sample: d for d in found}.values()) if unique else found
