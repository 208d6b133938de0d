"""`tune`: what it tries, chooses and refuses."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers import EXPERIMENT, ROOT, problems_file, sbd, write


def test_tune_tries_validation_problems_and_names_the_largest_gamma(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    problems_file("test").unlink()  # test problems are not tuned on
    arguments = ("tune", "--model", "llama", "--run", "sbd", "--benchmark", "words", "--gamma", "0.5", "0.1")
    arguments = (*arguments, "--block-size", "4", "--margin", "100", "--confidence", "0.9")
    capfd.readouterr()
    assert sbd(*arguments) == 0
    said = capfd.readouterr().out.splitlines()
    assert "words, 2 validation problems: llama sbd decoded one by one" in said[0]
    assert said[1] == "allowed: 100 points less, with confidence 0.9; the first gamma refused ends the search"
    assert said[2].split() == ["block", "gamma", "score", "difference", "at", "least", "tokens/pass"]
    with open("results/mini/tune/llama/sbd/words.csv", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["block_size"], row["gamma"], row["accepted"]) for row in rows] == [
        ("4", "0.1", "True"),
        ("4", "0.5", "True"),
    ]
    for row, line in zip(rows, said[3:5], strict=True):
        folder = Path(f"results/mini/tune/llama/sbd/words/gamma_{row['gamma']}_k4")
        record = json.loads((folder / "record.json").read_text())
        assert float(row["score"]) == record["score"]
        assert float(row["tokens_per_forward"]) == pytest.approx(record["tokens_per_forward"], rel=1e-5)
        shown = line.split()
        assert shown[:2] == [row["block_size"], row["gamma"]]
        assert shown[5:] == [f"{record['tokens_per_forward']:.2f}", "within"]
    speed = float(rows[1]["tokens_per_forward"])
    assert said[5] == f"use gamma 0.5 with blocks of 4: {speed:.2f} tokens per pass"
    assert said[6] == "results/mini/tune/llama/sbd/words.csv"
    # Two problems cannot show that 2 points at most are lost.
    assert sbd(*arguments[:-3], "2") == 0
    assert "none can be used: decode one by one" in capfd.readouterr().out


def test_tune_takes_a_checkpoint_and_problems_of_ones_own(
    here: Path, refuses: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = shutil.copytree("results/mini/models/llama/sbd/checkpoint", "mine")
    problems_file("validation").rename("own.jsonl")
    arguments = ("tune", "--benchmark", "words", "--gamma", "0.1", "--block-size", "4", "--margin", "100")
    own = ("--checkpoint", str(checkpoint), "--output", "tuned")
    assert "own.jsonl" in refuses(*arguments, *own, "--problems", "not_own.jsonl").replace("not_own", "own")
    capfd.readouterr()
    assert sbd(*arguments, *own, "--problems", "own.jsonl") == 0
    said = capfd.readouterr().out.splitlines()
    assert f"words, 2 validation problems: {checkpoint} checkpoint decoded one by one" in said[0]
    assert said[-1] == "tuned/words.csv"
    assert len(Path("tuned/words.csv").read_text().splitlines()) == 2
    assert "either --model and --run, of the experiment, or --checkpoint" in refuses(*arguments)
    assert "--model needs --run" in refuses(*arguments, "--model", "llama")
    assert "give --output, and no run" in refuses(*arguments, "--checkpoint", str(checkpoint))


def test_tune_refuses_what_generates_nothing_and_what_has_no_validation_split(
    refuses: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    task = {"task": str(ROOT / "experiments/tasks/tiny_choice.yaml"), "source": "words", "max_new_tokens": 1}
    write(benchmarks={**EXPERIMENT["benchmarks"], "choice": task})
    arguments = ("tune", "--model", "llama", "--run", "sbd", "--benchmark")
    assert sbd(*arguments, "choice") == 2  # bars of progress come first within one process
    said = capfd.readouterr().err.splitlines()[-1]
    assert said == ("sbd tune: error: 'choice' is a likelihood task and generates nothing; choose another benchmark")
    source = {"generator": "tiny_gsm", "train": 12, "test": 2}
    write(data={**EXPERIMENT["data"], "sources": {"words": source}})
    assert "source 'words' has no validation split" in refuses(*arguments, "words")
