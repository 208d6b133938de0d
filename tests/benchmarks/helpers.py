"""What the tests of benchmarks share: published rows, right and wrong answers, and a model that says them."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import sbd
from sbd import evaluation
from sbd.evaluation.task_files import read
from tests.evaluation_helpers import KEY, jsonl, scripted, tiny_stub

ROOT = Path(__file__).parents[2]
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
