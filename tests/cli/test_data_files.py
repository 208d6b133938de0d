"""Data of the user: what is missing, cut off or of another kind is named by its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import EVALUATE, problems_file, sbd, write


def test_missing_data(refuses: Callable[..., str]) -> None:
    problems_file("train").unlink()
    assert "no such data file: results/mini/data/words/train.jsonl; check the path" in refuses("prepare")


def test_truncated_data(refuses: Callable[..., str]) -> None:
    text = problems_file("train").read_text()
    problems_file("train").write_text(text[: len(text) - 30])
    before = Path("results/mini/data/train/manifest.json").read_bytes()
    assert "train.jsonl, line 12: not JSON (" in refuses("prepare")
    assert Path("results/mini/data/train/manifest.json").read_bytes() == before
    problems_file("test").write_text('{"id": "1", "prom')
    assert "test.jsonl, line 1: not JSON" in refuses(*EVALUATE, "words")


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_empty_prompt(refuses: Callable[..., str], split: str) -> None:
    lines = problems_file(split).read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), "prompt": ""})
    problems_file(split).write_text("\n".join(lines) + "\n")
    arguments = ("prepare",) if split == "train" else (*EVALUATE, "words")
    assert f"{split}.jsonl, line 2: prompt missing or empty; each problem needs a text there" in refuses(*arguments)


GSM8K = {"format": "gsm8k", "train": "train.jsonl", "validation": 1, "test": "test.jsonl"}
ROW = {"question": "Two and three?", "answer": "2+3 = <<2+3=5>>5 apples.\n1000+5 = <<1000+5=1005>>1005\n#### 1,005"}


def gsm8k(source: dict[str, Any] = GSM8K, train: str | None = None) -> None:
    write(data={"sequence_length": 400, "sources": {"words": source}})
    Path("files").mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps({**ROW, 'question': f'Question {number}?'})}\n" for number in range(3))
    Path("files/train.jsonl").write_text(lines if train is None else train)
    Path("files/test.jsonl").write_text(lines)


def test_local_gsm8k_files(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gsm8k()
    assert sbd("problems", "--source", "words", "--data", "files") == 0
    assert "2 train, 1 validation, 3 test" in capfd.readouterr().out
    lines = [json.loads(line) for line in problems_file("validation").read_text().splitlines()]
    assert [(line["prompt"], line["solution"], line["answer"]) for line in lines] == [
        ("Question 2?\n", "2+3 = 5 apples.\n1000+5 = 1005\n#### 1,005", "1005")
    ]


@pytest.mark.parametrize(
    ("source", "train", "message"),
    [
        ({**GSM8K, "train": "none.jsonl"}, None, "no such data file: files/none.jsonl (train of source 'words')"),
        (GSM8K, '{"question": "Two', "files/train.jsonl, line 1: not JSON (Unterminated string"),
        (GSM8K, '{"question": "Two?"}\n', "no answer"),
        (GSM8K, '{"question": "Two?", "answer": "2"}\n', "no line '#### number'"),
        (
            GSM8K,
            json.dumps({**ROW, "question": "Two\ud800?"}),
            "files/train.jsonl, row 1: \\ud800 is half of a character",
        ),
        (GSM8K, "", "files/train.jsonl holds no problem"),
        ({**GSM8K, "validation": 3}, None, "validation takes 3 of 3 training problems; nothing is left to train on"),
        ({**GSM8K, "train": "nobody/nothing"}, None, "'nobody/nothing' is no file and could not be read from the hub"),
        ({**GSM8K, "format": "problems"}, None, "files/train.jsonl, line 1: prompt missing or empty"),
    ],
)
def test_local_files_that_are_no_source(
    refuses: Callable[..., str], source: dict[str, Any], train: str | None, message: str
) -> None:
    gsm8k(source, train)
    before = problems_file("train").read_bytes()
    assert message in refuses("problems", "--source", "words", "--data", "files")
    assert problems_file("train").read_bytes() == before
