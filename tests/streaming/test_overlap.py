"""Overlap with benchmarks against brute force, and what the data step makes of it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from sbd import overlap
from tests.streaming.helpers import (
    MATH,
    QUESTION,
    parquet_file,
    run,
    write,
)


def brute_force(question: str, text: str) -> bool:
    """Whether 13 words in a row of ``question`` stand in ``text``."""
    ours, theirs = (re.findall(r"\w+", t.lower()) for t in (question, text))
    runs = {tuple(theirs[i : i + 13]) for i in range(len(theirs) - 12)}
    return any(tuple(ours[i : i + 13]) in runs for i in range(len(ours) - 12))


def test_overlap_is_that_of_brute_force() -> None:
    random = np.random.default_rng(0)
    words = [f"w{n}" for n in range(6)]
    questions = {
        name: [" ".join(random.choice(words, size=random.integers(5, 25))) for _ in range(12)] for name in ("a", "b")
    }
    index = overlap.Index.of(questions)
    assert index.short == [sum(len(q.split()) < 13 for q in found) for found in questions.values()]
    hits = 0
    for number in range(60):
        text = " ".join(random.choice(words, size=60))
        if number % 2:
            part = questions["a"][number % 12].split()
            text += ", " + "; ".join(part[-14:]).upper() + " " + text
        question = questions["b"][number % 12].title() if number % 3 == 0 else text
        found = index.find(question, text)
        expected = {
            name: numbers
            for name, all_of in questions.items()
            if (numbers := [i for i, q in enumerate(all_of) if brute_force(q, text)])
        }
        assert found.grams == expected
        same = re.findall(r"\w+", question.lower())
        exact = {
            name: numbers
            for name, all_of in questions.items()
            if (numbers := [i for i, q in enumerate(all_of) if q.split() == same])
        }
        assert found.exact == exact
        hits += len(expected)
    assert hits > 10


def overlap_rows() -> list[dict[str, str]]:
    with open("results/mini/data/train/overlap.csv", newline="") as lines:
        return list(csv.DictReader(lines))


def test_overlap_is_reported_or_left_out(here: Path) -> None:
    copied = {"problem": QUESTION.upper(), "generated_solution": "Six ."}
    quoted = {"problem": "Solve it .", "generated_solution": "So: " + " ".join(QUESTION.split()[:13]) + " ."}
    close = {"problem": "Solve it too .", "generated_solution": "So: " + " ".join(QUESTION.split()[:12]) + " no ."}
    parquet_file(here / "data/math.parquet", [*MATH, copied, quoted, close])
    write()
    assert run()["sources"]["math"]["documents"] == 9 + 3 - 2
    first = overlap_rows()[0]
    assert first == {
        "source": "math", "benchmark": "words", "problems": "2", "problems_under_13_words": "1", "documents": "12",
        "exact_documents": "1", "exact_problems": "1", "gram_documents": "2", "gram_problems": "1",
        "dropped_documents": "0",
    }  # fmt: skip
    assert {row["source"]: row["gram_documents"] for row in overlap_rows()} == {"math": "2", "code": "0", "chat": "0"}
    write(overlap="drop")
    made = run()["sources"]["math"]
    assert made["dropped"] == {"benchmark overlap": 2}
    assert made["documents"] == 9 + 1 - 2
    assert overlap_rows()[0]["dropped_documents"] == "2"
