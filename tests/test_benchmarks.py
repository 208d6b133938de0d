"""The benchmarks of the paper scale: gold answers score 100%, wrong ones 0%, on files with the published columns.

GSM8K and HumanEval are tried in full where their files lie in the folder that SBD_DATA names.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import os
import pickle
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

import sbd
from sbd import conversations, evaluation
from sbd.cli import main
from sbd.config import Experiment
from sbd.data import encode_prompt
from sbd.errors import UserError
from sbd.evaluation import code
from sbd.evaluation.task_files import load_task, read
from sbd.experiment_files import load_experiment
from sbd.sandbox import run_program
from sbd.steps import problems
from tests.evaluation_helpers import KEY, jsonl, scripted, tiny_stub

ROOT = Path(__file__).parents[1]
TASKS = ROOT / "experiments/tasks/paper"
DATA = Path(os.environ.get("SBD_DATA", "SBD_DATA"))
THOUGHT = "Let me see. \\boxed{999} ```python\nno\n```\n</think>\n\n"
Rows = list[dict[str, Any]]

GSM8K = [
    {"question": "Two and three?", "answer": "2+3=<<2+3=5>>5\n#### 5"},
    {"question": "A house?", "answer": "It costs\n#### 70,000"},
    {"question": "Below?", "answer": "Cold.\n#### -4"},
]
MATH500 = [
    {
        "problem": "Half of a half?",
        "solution": r"It is $\boxed{\frac{1}{4}}$.",
        "answer": r"\frac{1}{4}",
        "unique_id": "a",
    },
    {"problem": "Where?", "solution": r"So $x$ is in \boxed{[2,5)}.", "answer": "[2,5)", "unique_id": "b"},
]
AIME25 = [{"problem": "How many?", "answer": "70", "id": "0"}, {"problem": "And $n$?", "answer": "588", "id": "1"}]
HUMANEVAL = [
    {
        "task_id": f"HumanEval/{n}",
        "prompt": f'def add_{n}(x):\n    """Add {n} to x."""\n',
        "entry_point": f"add_{n}",
        "canonical_solution": f"    return x + {n}\n",
        "test": "import numpy as np\n\ndef check(candidate):\n"
        f"    for x in (0, 1.5, 7):\n        assert np.allclose(candidate(x), x + {n}, rtol=1e-07, atol=1e-06)\n",
    }
    for n in range(3)
]
MBPP = [
    {
        "task_id": n,
        "prompt": f"Write a function to add {n}.",
        "code": f"def add(x):\n    return math.floor(x) + {n}",
        "test_imports": ["import math"],
        "test_list": [f"assert add({x}) == {x + n}" for x in range(3)],
    }
    for n in (601, 602)
]


def encoded(tests: Rows) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


STDIN = [
    {"input": "2\n1 2\n", "output": "3\n", "testtype": "stdin"},
    {"input": "1\n5\n", "output": "5", "testtype": "stdin"},
]
CALLS = [{"input": "[3, 1]\n2", "output": "[1, 3, 2]", "testtype": "functional"}]
LCB = [
    {
        "question_content": "Add the numbers.",
        "question_id": "abc1_a",
        "starter_code": "",
        "contest_date": "2024-09-07T00:00:00",
        "public_test_cases": json.dumps(STDIN[:1]),
        "private_test_cases": encoded(STDIN[1:]),
        "metadata": "{}",
    },
    {
        "question_content": "Sort, and append k.",
        "question_id": "3700",
        "starter_code": "class Solution:\n    def order(self, nums: List[int], k: int) -> List[int]:\n        ",
        "contest_date": "2025-02-01T00:00:00",
        "public_test_cases": json.dumps(CALLS),
        "private_test_cases": json.dumps([{"input": "[]\n9", "output": "[9]", "testtype": "functional"}]),
        "metadata": json.dumps({"func_name": "order"}),
    },
]
ADD = "n = int(input())\nprint(float(sum(map(int, input().split()))))"
SOLVE = "class Solution:\n    def order(self, nums: List[int], k: int) -> List[int]:\n        return (*sorted(nums), k)"


def fenced(program: str) -> str:
    return f"So:\n```python\n{program}\n```\nDone."


CASES: dict[str, tuple[Rows, list[str], list[str]]] = {
    "gsm8k": (
        GSM8K,
        [f"Well. The final answer is {row['answer'].split('#### ')[1]}" for row in GSM8K],
        ["The final answer is 6", "70,000", "The final answer is -4 or 4. The final answer is 4"],
    ),
    "gsm8k_text": (
        GSM8K,
        [f" The answer is {row['answer'].split('#### ')[1]}." for row in GSM8K],
        [" The answer is 6.", " The answer is 7,000.", " It is -4."],
    ),
    "math500": (
        MATH500,
        [THOUGHT + row["solution"] for row in MATH500],
        [THOUGHT + r"$\boxed{\frac{1}{3}}$", r"So \boxed{[2,5)}, but the thought goes on"],
    ),
    "aime25": (
        AIME25,
        [THOUGHT + f"The answer is \\boxed{{{row['answer']}}}." for row in AIME25],
        [THOUGHT + r"\boxed{71}", THOUGHT],
    ),
    "humaneval_plus": (
        HUMANEVAL,
        [row["canonical_solution"] for row in HUMANEVAL],
        ["    return x + 17\n", "    return (\n", "    while True: pass\n"],
    ),
    "humaneval_text": (
        HUMANEVAL,
        [row["canonical_solution"] for row in HUMANEVAL],
        ["    return x - 1\n", "    raise ValueError\n", "    import socket; socket.socket()\n"],
    ),
    "mbpp": (MBPP, [row["code"] + "\n" for row in MBPP], ["def add(x):\n    return x\n", "def other(): pass\n"]),
    "livecodebench": (
        LCB,
        [THOUGHT + fenced(ADD), THOUGHT + fenced("print(1)") + fenced(SOLVE)],
        [THOUGHT + fenced("print(3)"), "No thought ended.\n" + fenced(SOLVE)],
    ),
}


@pytest.fixture
def chatty(tokenizer: Any) -> Any:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = (ROOT / "experiments/templates/chat.jinja").read_text()
    return tokenizer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless loops end sooner than in a real evaluation."""
    monkeypatch.setattr(code, "LIMITS", dataclasses.replace(code.LIMITS, cpu_seconds=3))


def thinks(task: str) -> bool:
    return bool(read(TASKS / f"{task}.yaml")["metadata"].get("thinking"))


def answer(
    task: str, rows: Rows, texts: list[str], folder: Path, tokenizer: Any, monkeypatch: Any, **more: Any
) -> tuple[Any, Rows]:
    """A whole evaluation of a model that answers with ``texts``: the record and the saved lines."""
    answers = {
        number: [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        for number, text in enumerate(texts)
    }
    monkeypatch.setitem(vars(sbd), "generate", scripted(answers))
    made = evaluation.evaluate(
        (tiny_stub(tokenizer, positions=10**6), tokenizer),
        TASKS / f"{task}.yaml",
        jsonl(folder / "test.jsonl", rows),
        {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 0.1}},
        folder / "out",
        KEY,
        **{
            "batch_size": 64,
            "max_new_tokens": 4000,
            "thinking": thinks(task),
            "prompt": "text" if task.endswith("_text") or task == "mbpp" else "chat",
            **more,
        },
    )
    return made, evaluation.read_generations(folder / "out/generations.jsonl")


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
    jsonl(out / "generations.jsonl", [{**line, "text": line["text"].rstrip(".") + "1"} for line in lines])
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


# ------------------------------------------------------------------------------------------------ code


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1 2\n3\n", "1 2\n3", True),
        (" 1 2 \n3", "1 2\n3\n\n", True),
        ("1.0 2\n3", "1 2.00\n3", True),
        ("1 2 3", "1 2\n3", False),
        ("yes", "Yes", False),
        ("50000000000000001", "50000000000000000", False),
        ("", "1", False),
        ("nan", "nan", True),
    ],
)
def test_printed_lines_are_compared_as_judges_do(printed: str, expected: str, same: bool) -> None:
    assert code.same_output(printed, expected) is same


def test_the_program_is_the_last_complete_block() -> None:
    assert code.last_block("a\n```python\nx\n```\nb\n```\ny\n```\n") == "y\n"
    assert code.last_block("a\n```python\nx\n```\nb\n```python\ny") == "x\n"
    assert code.last_block("no block") == ""


def test_every_test_counts_and_the_first_that_fails_decides() -> None:
    row = {**LCB[0], "private_test_cases": encoded([{"input": "1\n6\n", "output": "7", "testtype": "stdin"}])}
    assert code.livecodebench(row, [[fenced(ADD)]])["failed"] == 1.0
    assert code.livecodebench(LCB[0], [fenced(ADD)])["pass_at_1"] == 1.0
    assert code.livecodebench(LCB[0], [fenced("print(1 / 0)")])["error"] == 1.0
    assert code.livecodebench(LCB[1], [fenced("class Solution:\n    def order(self, nums, k):\n        return {1}")])[
        "error"
    ]
    assert code.livecodebench(LCB[1], [fenced("def order(nums, k):\n    return sorted(nums) + [k]")])["passed"] == 1.0


def test_private_tests_that_name_code_are_refused() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (print, ("ran",))

    bad = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    for text in (bad, "%%%", base64.b64encode(b"no zlib").decode()):
        with pytest.raises(UserError, match="tests of LiveCodeBench problem None cannot be read"):
            code.contest_tests({**LCB[0], "private_test_cases": text})


def test_programs_may_use_numpy_only_where_it_is_asked_for() -> None:
    source = "import numpy as np\nassert np.linalg.norm(np.array([3.0, 4.0])) == 5\nopen('/etc/hostname').read()"
    assert run_program(source, packages=("numpy",), limits=code.LIMITS).status == "denied"
    assert run_program(source, limits=code.LIMITS).status in ("error", "denied")
    with pytest.raises(UserError, match="programs need the package nothing_like_it"):
        run_program("1", packages=("nothing_like_it",))


# ------------------------------------------------------------------------------------------------ likelihood tasks


LIKELIHOOD: dict[str, tuple[dict[str, Any], str, int]] = {
    "mmlu": (
        {"question": " Who ? ", "subject": "world_history", "choices": ["a", "b", "c", "d"], "answer": 2},
        "about world history.\n\nWho ?\nA. a\nB. b\nC. c\nD. d\nAnswer:",
        4,
    ),
    "gpqa": (
        {"Question": "Why ?", "Correct Answer": "so", **{f"Incorrect Answer {n}": f"no {n}" for n in (1, 2, 3)}},
        "What is the correct answer to this question:Why ?\nChoices:\n(A) ",
        4,
    ),
    "hellaswag": (
        {
            "activity_label": "Play",
            "ctx_a": "He sat.",
            "ctx_b": "he",
            "ctx": "",
            "endings": ["ran", "sat", "x", "y"],
            "label": "1",
        },
        "Play: He sat. He",
        4,
    ),
    "winogrande": ({"sentence": "Tom saw _ run.", "option1": "Mia", "option2": "Bo", "answer": "1"}, "Tom saw Mia", 2),
    "arc_easy": (
        {"question": "Hot ?", "choices": {"text": ["ice", "fire"], "label": ["A", "B"]}, "answerKey": "B"},
        "Question: Hot ?\nAnswer:",
        2,
    ),
}
LIKELIHOOD["arc_challenge"] = LIKELIHOOD["arc_easy"]


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


# ------------------------------------------------------------------------------------------------ files and bad input


def test_every_task_of_the_paper_loads_and_runs_nothing_unsafe(tmp_path: Path) -> None:
    files = {
        **{task: rows for task, (rows, _, _) in CASES.items()},
        **{t: [row] for t, (row, _, _) in LIKELIHOOD.items()},
    }
    assert {path.stem for path in TASKS.glob("*.yaml")} == set(files)
    for task, rows in files.items():
        loaded: Any = load_task(TASKS / f"{task}.yaml", jsonl(tmp_path / "t.jsonl", rows), thinks(task))
        assert not getattr(loaded, "UNSAFE_CODE", False)
        assert loaded.DATASET_PATH is None
        text = (TASKS / f"{task}.yaml").read_text()
        assert text.startswith("#"), "each says what it takes and what it swaps"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "include: lm-eval:gsm8k/none.yaml\n",
            "there is no task file .*none.yaml; is it of another version of lm-eval",
        ),
        ("task: [1", "not YAML"),
        ("- 1\n", "is a mapping of keys"),
        ("task: a\n", "must define one task, and name its score"),
        (
            "task: a\ndoc_to_text: !function sbd.nothing.here\nmetadata: {score: x}\n",
            "sbd.nothing.here .* cannot be imported",
        ),
        (
            "task: a\nmetadata: {score: x, thinking: true}\n",
            "reads answers behind a thought, but the benchmark has thinking: f",
        ),
    ],
)
def test_wrong_task_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_task(tmp_path / "t.yaml", jsonl(tmp_path / "t.jsonl", GSM8K))


def test_a_benchmark_without_a_column(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "t.jsonl", [{"question": "x"}])
    with pytest.raises(UserError, match=r"t.jsonl has no column answer; it has question"):
        load_task(TASKS / "gsm8k.yaml", data)
    data = jsonl(tmp_path / "t.jsonl", [GSM8K[0], {"question": "x", "answer": None}])
    with pytest.raises(UserError, match=r"t.jsonl, line 2: answer missing"):
        load_task(TASKS / "gsm8k.yaml", data)


def test_a_chat_needs_a_template(tokenizer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match="the checkpoint's tokenizer has no chat template"):
        answer("gsm8k", GSM8K, ["x"] * 3, tmp_path, tokenizer, monkeypatch)


def experiment(**data: Any) -> Experiment:
    """The paper's data and benchmarks with the least of the rest."""
    raw = yaml.safe_load((ROOT / "experiments/paper/data.yaml").read_text())
    both = yaml.safe_load((ROOT / "experiments/paper/likelihood.yaml").read_text())
    raw["data"]["sources"] |= both["data"]["sources"] | data
    tokenizer = {"path": "x", "mask_token": "m", "chat_template": "experiments/templates/chat.jinja"}
    run = {"objective": "sbd", "steps": 1, "batch_rows": 64, "micro_rows": 1, "learning_rate": 3e-4, "warmup_steps": 1}
    return Experiment.model_validate(
        {
            "scale": "paper",
            "tokenizer": tokenizer,
            "data": raw["data"],
            "benchmarks": raw["benchmarks"] | both["benchmarks"],
            "models": {"llama": {"path": "a"}, "qwen": {"path": "b", "tokenizer": {**tokenizer, "path": "b"}}},
            "runs": {"sbd": run},
            "decoders": {"ntp": {"kind": "autoregressive"}},
            "evaluations": [{"runs": ["sbd"], "decoders": ["ntp"]}],
            "table1": {"rows": [{"run": "sbd", "decoder": "ntp"}]},
            "pareto": {"curves": {}},
        }
    )


def test_data_and_benchmarks_of_the_paper_are_valid() -> None:
    found = experiment()
    assert found.data.streamed
    assert [name for name, source in found.data.sources.items() if source.streamed] == [
        "open_math_reasoning", "open_code_reasoning", "tulu"
    ]  # fmt: skip
    assert set(found.data.unpinned()) == set(found.data.sources) - {"livecodebench_test"}, "no commit is invented"
    assert sum(source.weight or 0 for source in found.data.sources.values()) == pytest.approx(1)
    assert len(found.tested_sources()) == 12
    assert found.data_folder("train", "qwen") != found.data_folder("train", "llama") == found.data_folder("train")
    assert all((ROOT / benchmark.task).is_file() for benchmark in found.benchmarks.values())


def test_the_window_of_livecodebench(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "livecodebench").mkdir()
    days = ["2024-07-31", "2024-08-01", "2025-01-15", "2025-05-31", "2025-06-01"]
    rows = [{**LCB[0], "question_id": str(n), "contest_date": f"{day}T00:00:00"} for n, day in enumerate(days)]
    jsonl(tmp_path / "livecodebench/test.jsonl", rows[:3])
    jsonl(tmp_path / "livecodebench/test6.jsonl", rows[3:])
    source = yaml.safe_load((ROOT / "experiments/paper/data.yaml").read_text())["data"]["sources"]["livecodebench_test"]
    with pytest.raises(UserError, match=r"holds 3 problems from 2024-08-01 to 2025-05-31, not the 454 of source"):
        problems.run(experiment(), "livecodebench_test", tmp_path)
    problems.run(experiment(livecodebench_test={**source, "expected": 3}), "livecodebench_test", tmp_path)
    kept = (tmp_path / "results/paper/data/livecodebench_test/test.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in kept] == ["1", "2", "3"]


# ------------------------------------------------------------------------------------------------ scores apart


def test_a_score_is_made_apart_and_again_without_a_model(
    tokenizer: Any, model: Any, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """The verbs ``evaluate`` and ``score``: generations in one folder, the record in another, as often as one likes."""
    from tests.test_cli import EXPERIMENT

    monkeypatch.chdir(tmp_path)
    task = {"task": str(TASKS / "humaneval_text.yaml"), "source": "he", "max_new_tokens": 4, "scored": "apart"}
    at_once = {**task, "task": str(TASKS / "gsm8k_text.yaml"), "source": "gsm", "scored": "at_once"}
    sources = {name: {"format": "benchmark", "test": f"{name}.jsonl"} for name in ("he", "gsm")}
    raw = {
        **EXPERIMENT,
        "benchmarks": {"he": task, "gsm": at_once},
        "data": {"sequence_length": 400, "sources": {**EXPERIMENT["data"]["sources"], **sources}},
        "evaluations": [{"runs": ["sbd"], "decoders": ["ntp", "eb"], "benchmarks": ["he"]}],
    }
    Path("mini.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    (tmp_path / "data").mkdir()
    jsonl(tmp_path / "data/he.jsonl", HUMANEVAL)
    jsonl(tmp_path / "data/gsm.jsonl", GSM8K)
    found = load_experiment("mini.yaml")
    checkpoint = found.run_folder("llama", "sbd") / "checkpoint"
    model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)

    def verb(name: str, *more: str) -> int:
        return main([name, "--experiment", "mini.yaml", *more])

    job = ("--model", "llama", "--run", "sbd", "--decoder", "eb", "--benchmark")
    assert verb("problems", "--source", "he") == 0
    assert verb("score", *job, "he") == 2
    assert "no finished generations in" in capfd.readouterr().err
    assert verb("evaluate", *job, "he") == 0
    generated = found.generated_folder("llama", "sbd", "eb", "he")
    records = found.record_folder("llama", "sbd", "eb", "he")
    assert sorted(path.name for path in generated.iterdir()) == ["generated.json", "generations.jsonl"]
    assert not records.exists()
    assert verb("score", *job, "he") == 0
    made = json.loads((records / "record.json").read_text())
    assert (made["n"], made["score"], made["truncated"]) == (3, 0.0, 3)
    assert made["metric"] == "pass_at_1,create_test"
    assert made["generation_settings"]["num_fewshot"] == 0
    lines = [json.loads(line) for line in (generated / "generations.jsonl").read_text().splitlines()]
    assert {line["correct"] for line in lines} == {None}
    for line, row in zip(lines, HUMANEVAL, strict=True):
        line["text"] = row["canonical_solution"]
    for name, contents in (("generated.json", ("{}", "[]", '{"key": 1}', "{")), ("generations.jsonl", ("{}\n", "3\n"))):
        whole = (generated / name).read_text()
        for content in contents:
            (generated / name).write_text(content)
            capfd.readouterr()
            assert verb("score", *job, "he") == 2
            [said] = capfd.readouterr().err.splitlines()
            assert re.search(
                rf"{name}.* (is damaged|missing).*run `python -m sbd evaluate .*--benchmark he` again", said
            )
        (generated / name).write_text(whole)
    jsonl(generated / "generations.jsonl", lines)
    checkpoint.rename(checkpoint.with_name("away"))
    assert verb("score", *job, "he") == 0
    assert json.loads((records / "record.json").read_text())["score"] == 100.0
    assert verb("score", *job, "gsm") == 2
    assert "is scored by `evaluate`" in capfd.readouterr().err.splitlines()[-1]
