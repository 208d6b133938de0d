"""The benchmarks of the paper scale: gold answers score 100%, wrong ones 0%, on files with the published columns.

GSM8K and HumanEval are tried in full where their files lie in the folder that SBD_DATA names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import sbd
from sbd import conversations, evaluation
from sbd.evaluation.task_files import read
from tests.benchmarks.helpers import (
    AIME25,
    CASES,
    DATA,
    GSM8K,
    HUMANEVAL,
    LCB,
    MATH500,
    MBPP,
    ROOT,
    TASKS,
    THOUGHT,
    Rows,
    answer,
)
from tests.evaluation_helpers import KEY, jsonl, scripted, tiny_stub


@pytest.mark.parametrize("task", sorted(CASES))
def test_gold_answers_score_100_and_wrong_ones_0(task: str, chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    rows, gold, wrong = CASES[task]
    made, _ = answer(task, rows, gold, tmp_path, chatty, monkeypatch)
    assert (made.n, made.score, made.truncated) == (len(rows), 100.0, 0)
    assert made.first_prompt_ids.count(chatty.bos_token_id) == 1
    assert made.first_prompt_ids[0] == chatty.bos_token_id
    made, lines = answer(task, rows, wrong, tmp_path, chatty, monkeypatch)
    assert made.score == 0.0
    assert [line["correct"] for line in lines] == [0.0] * len(rows)
    made, lines = answer(task, rows, [gold[0], *wrong[1:]], tmp_path, chatty, monkeypatch)
    assert [line["correct"] for line in lines] == [1.0] + [0.0] * (len(rows) - 1)


def test_how_programs_ended_stands_in_the_record(chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    made, _ = answer("humaneval_plus", HUMANEVAL, CASES["humaneval_plus"][2], tmp_path, chatty, monkeypatch)
    assert made.outcomes == {"error": 1, "failed": 1, "timeout": 1}
    made, _ = answer("humaneval_text", HUMANEVAL, CASES["humaneval_text"][2], tmp_path, chatty, monkeypatch)
    assert made.outcomes == {"denied": 1, "error": 1, "failed": 1}


def test_a_truncated_thought_is_counted_and_has_no_answer(chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    texts = [r"It could be \boxed{70}, " * 30, THOUGHT + r"\boxed{588}"]
    limit = len(chatty(texts[0], add_special_tokens=False)["input_ids"])
    answers = {0: chatty(texts[0], add_special_tokens=False)["input_ids"]}
    answers[1] = [*chatty(texts[1], add_special_tokens=False)["input_ids"], chatty.eos_token_id]
    monkeypatch.setitem(vars(sbd), "generate", scripted(answers))
    made = evaluation.evaluate(
        (tiny_stub(chatty, positions=10**6), chatty),
        TASKS / "aime25.yaml",
        jsonl(tmp_path / "test.jsonl", AIME25),
        sbd.Autoregressive(),
        tmp_path / "out",
        KEY,
        prompt="chat",
        thinking=True,
        max_new_tokens=limit,
    )
    assert (made.score, made.truncated) == (50.0, 1)


# ------------------------------------------------------------------------------------------------ prompts


def prompts(task: str, rows: Rows, folder: Path, tokenizer: Any, monkeypatch: Any) -> list[str]:
    _, lines = answer(task, rows, ["x"] * len(rows), folder, tokenizer, monkeypatch)
    return [line["prompt"] for line in lines]


def test_prompts_of_the_chat_benchmarks(chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    empty = "<think>\n\n</think>\n\n"
    first = prompts("gsm8k", GSM8K, tmp_path, chatty, monkeypatch)[0]
    turns = first.split("User:\n")[1:]
    assert len(turns) == 8 + 1
    assert all(turn.endswith(f"{chatty.eos_token}\n\n") and "The final answer is" in turn for turn in turns[:-1])
    assert turns[-1].startswith(
        "Given the following problem, reason and give a final answer to the problem.\nProblem: Two and"
    )
    assert first.endswith("Assistant:\n" + empty)
    first = prompts("humaneval_plus", HUMANEVAL, tmp_path, chatty, monkeypatch)[0]
    head = HUMANEVAL[0]["prompt"]
    # The answer has begun, behind the same empty thought as in training.
    assert first.endswith(f"Assistant:\n{empty}Here is the completed function:\n```python\n{head}\n")


def test_prompts_with_a_thought(chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    asked = "{}\n\nReason step by step, and put the final answer within \\boxed{{}}."
    for task, rows in (("math500", MATH500), ("aime25", AIME25)):
        message = {"role": "user", "content": asked.format(rows[0]["problem"])}
        expected = conversations.render(chatty, [message], True)
        assert expected.endswith("Assistant:\n<think>\n")
        assert prompts(task, rows, tmp_path, chatty, monkeypatch)[0] == expected
    found = prompts("livecodebench", LCB, tmp_path, chatty, monkeypatch)
    assert "standard input" in found[0]
    assert LCB[1]["starter_code"] in found[1]
    assert "standard input" not in found[1]


def test_prompts_of_base_models_are_stock_text(chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    first = prompts("mbpp", MBPP, tmp_path, chatty, monkeypatch)[0]
    assert first.count("[BEGIN]") == 4
    assert first.count("[DONE]") == 3
    assert first.endswith("assert add(2) == 603\n[BEGIN]\n")
    assert prompts("humaneval_text", HUMANEVAL, tmp_path, chatty, monkeypatch)[0] == HUMANEVAL[0]["prompt"]
    assert prompts("gsm8k_text", GSM8K, tmp_path, chatty, monkeypatch)[0].count("Q: ") == 9


def test_lengths_of_the_benchmarks_are_those_of_the_paper() -> None:
    keys = yaml.safe_load((ROOT / "experiments/paper/data.yaml").read_text())["benchmarks"]
    lengths = {name: given["max_new_tokens"] for name, given in keys.items()}
    assert {name: lengths[name] for name in ("gsm8k", "humaneval_plus", "mbpp")} == {
        "gsm8k": 1024, "humaneval_plus": 1024, "mbpp": 256
    }  # fmt: skip
    assert {lengths[name] for name in ("math500", "aime25", "livecodebench_v6")} == {30720}
    for given in keys.values():
        config = read(ROOT / given["task"])
        assert config["generation_kwargs"]["max_gen_toks"] == given["max_new_tokens"]
        assert bool(config["metadata"].get("thinking")) == given.get("thinking", False)
        assert (given.get("scored") == "apart") == (config["metadata"]["score"].startswith("pass"))


# ------------------------------------------------------------------------------------------------ in full


@pytest.mark.slow
@pytest.mark.skipif(
    not (DATA / "gsm8k_test.jsonl").is_file(), reason="no GSM8K; SBD_DATA=FOLDER names where gsm8k_test.jsonl lies"
)
@pytest.mark.parametrize("task", ["gsm8k", "gsm8k_text"])
def test_gsm8k_in_full(task: str, chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    rows = [json.loads(line) for line in (DATA / "gsm8k_test.jsonl").read_text().splitlines()]
    numbers = [row["answer"].split("#### ")[1] for row in rows]
    say = "The final answer is {}" if task == "gsm8k" else "The answer is {}."
    texts = [say.format(number) for number in numbers]
    monkeypatch.setattr(chatty, "decode", lambda ids: texts[ids[0]])
    monkeypatch.setitem(vars(sbd), "generate", scripted({n: [n, chatty.eos_token_id] for n in range(len(rows))}))
    data, out = jsonl(tmp_path / "test.jsonl", rows), tmp_path / "out"
    made = evaluation.evaluate(
        (tiny_stub(chatty, 10**6), chatty),
        TASKS / f"{task}.yaml",
        data,
        sbd.Autoregressive(),
        out,
        KEY,
        batch_size=64,
        prompt="chat" if task == "gsm8k" else "text",
    )
    assert (made.n, made.score) == (1319, 100.0)
    lines = evaluation.read_generations(out / "generations.jsonl")
    # Before the number: a digit behind it would be the one more character that the stock pattern of gsm8k_text takes.
    jsonl(out / "generations.jsonl", [{**line, "text": line["text"].replace(" is ", " is 1")} for line in lines])
    assert evaluation.rescore(out, TASKS / f"{task}.yaml", data).score == 0.0


@pytest.mark.slow
@pytest.mark.skipif(
    not (DATA / "humaneval.jsonl").is_file(), reason="no HumanEval; SBD_DATA=FOLDER names where humaneval.jsonl lies"
)
@pytest.mark.parametrize("task", ["humaneval_plus", "humaneval_text"])
def test_humaneval_in_full(task: str, chatty: Any, tmp_path: Path, monkeypatch: Any) -> None:
    rows = [json.loads(line) for line in (DATA / "humaneval.jsonl").read_text().splitlines()]
    made, _ = answer(task, rows, [row["canonical_solution"] for row in rows], tmp_path, chatty, monkeypatch)
    assert (made.n, made.score, made.outcomes) == (164, 100.0, {"passed": 164})
    made, _ = answer(task, rows, ["    return None\n"] * len(rows), tmp_path, chatty, monkeypatch)
    assert made.score == 0.0
