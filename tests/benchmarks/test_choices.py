"""Likelihood benchmarks ask as the stock tasks do, in an order that depends on the question only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbd import evaluation
from sbd.data import encode_prompt
from sbd.evaluation.task_files import load_task
from tests.benchmarks.helpers import (
    LIKELIHOOD,
    TASKS,
)
from tests.evaluation_helpers import KEY, jsonl


@pytest.mark.parametrize("task", sorted(LIKELIHOOD))
def test_likelihood_tasks_ask_as_the_stock_ones(task: str, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    row, text, choices = LIKELIHOOD[task]
    made = evaluation.evaluate(
        (model, tokenizer), TASKS / f"{task}.yaml", jsonl(tmp_path / "t.jsonl", [row, row]), None, tmp_path / "o", KEY
    )
    first, second = evaluation.read_generations(tmp_path / "o/generations.jsonl")
    assert text in first["prompt"]
    assert len(first["loglikelihoods"]) == choices
    assert first["loglikelihoods"] == second["loglikelihoods"]
    assert made.score in (0.0, 100.0)
    assert made.first_prompt_ids == encode_prompt(tokenizer, first["prompt"])


def test_the_order_of_choices_of_gpqa_depends_on_the_question_only(tmp_path: Path) -> None:
    rows = [{**LIKELIHOOD["gpqa"][0], "Question": f"Why {n} ?"} for n in range(40)]
    docs: list[Any] = [load_task(TASKS / "gpqa.yaml", jsonl(tmp_path / "t.jsonl", rows)).eval_docs for _ in range(2)]
    assert list(docs[0]) == list(docs[1])
    assert all(doc[f"choice{'ABCD'.index(doc['answer'][1]) + 1}"] == "so" for doc in docs[0])
    assert len({doc["answer"] for doc in docs[0]}) == 4
