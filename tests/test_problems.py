"""The problem generators: solvable, within their bounds, disjoint, reproducible, and varied."""

from __future__ import annotations

import contextlib
import json
import random
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sbd.data import train_tokenizer
from sbd.errors import UserError
from sbd.problems import GENERATORS, gsm8k, split

CALCULATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b}


@pytest.fixture(scope="module", params=sorted(GENERATORS))
def many(request: pytest.FixtureRequest) -> tuple[str, list[dict]]:
    return request.param, GENERATORS[request.param](3, 2000)


def test_word_problems_are_right_and_stay_within_0_and_20() -> None:
    for problem in GENERATORS["tiny_gsm"](1, 1000):
        *steps, last = problem["solution"].split("\n")
        assert len(steps) == 1
        calculations = CALCULATION.findall(steps[0])
        assert len(calculations) == problem["steps"]
        assert 2 <= problem["steps"] <= 3
        number = int(calculations[0][0])
        assert re.search(rf"\b{number}\b", problem["prompt"].split(".")[0])  # the start is in the first sentence
        for a, sign, b, result in calculations:
            assert int(a) == number
            number = int(result)
            assert OPERATIONS[sign](int(a), int(b)) == number
        assert last == f"The answer is {number}."
        assert problem["answer"] == str(number)
        assert all(0 <= int(n) <= 20 for n in re.findall(r"\d+", problem["prompt"] + problem["solution"]))


def test_functions_pass_their_own_tests_and_fail_those_of_others() -> None:
    problems = GENERATORS["tiny_code"](1, 600)
    confused = 0
    for problem, other in zip(problems, problems[1:] + problems[:1], strict=True):
        space: dict = {}
        exec(problem["prompt"] + problem["solution"], space)
        function = space[problem["entry_point"]]
        assert len(problem["tests"]) == 5
        assert all(function(*arguments) == expected for arguments, expected in problem["tests"])
        with contextlib.suppress(TypeError, ValueError):
            confused += all(function(*arguments) == expected for arguments, expected in other["tests"])
    assert confused <= 6  # tests that nearly any function passes would make pass@1 worthless


def test_fields_and_edges(many: tuple[str, list[dict]]) -> None:
    _name, problems = many
    for problem in problems:
        assert problem["prompt"].endswith("\n")
        assert problem["prompt"].strip()
        assert problem["solution"] == problem["solution"].rstrip()
        assert "\n\n" not in problem["solution"]
        assert json.loads(json.dumps(problem)) == problem
    assert len({problem["id"] for problem in problems}) == len({problem["prompt"] for problem in problems}) == 2000


def test_a_larger_count_only_adds_and_another_seed_differs(many: tuple[str, list[dict]]) -> None:
    name, problems = many
    assert GENERATORS[name](3, 50) == problems[:50]
    other = {problem["prompt"] for problem in GENERATORS[name](4, 50)}
    assert len(other & {problem["prompt"] for problem in problems[:50]}) < 5


def test_the_same_in_a_fresh_process_with_another_hash_seed(many: tuple[str, list[dict]]) -> None:
    name, problems = many
    code = f"import json; from sbd.problems import GENERATORS; print(json.dumps(GENERATORS[{name!r}](3, 20)))"
    environment = {"PYTHONHASHSEED": "77", "PYTHONPATH": str(Path(__file__).parents[1])}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == problems[:20]


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_splits_are_disjoint_and_the_test_set_does_not_depend_on_the_training_size(name: str) -> None:
    parts = split(name, 5, train=400, validation=50, test=100)
    prompts = [problem["prompt"] for part in parts.values() for problem in part]
    assert {part: len(problems) for part, problems in parts.items()} == {"train": 400, "validation": 50, "test": 100}
    assert len(set(prompts)) == 550
    assert split(name, 5, train=10, validation=50, test=100)["test"] == parts["test"]


def test_functions_of_test_and_train_differ_in_what_they_compute() -> None:
    parts = split("tiny_code", 5, train=3000, validation=0, test=300)

    draw = random.Random(0)
    lists = [[draw.randint(0, 20) for _ in range(draw.randint(1, 5))] for _ in range(150)]

    def behaviour(problem: dict) -> str:
        space: dict = {}
        exec(problem["prompt"] + problem["solution"], space)
        results = []
        for argument in lists if "xs" in problem["prompt"] else range(-3, 25):
            try:
                results.append(space[problem["entry_point"]](argument))
            except ValueError:  # the largest of no numbers; a loop gives 0 there, and the tests do not ask
                results.append(None)
        return str(results)

    seen = {behaviour(problem) for problem in parts["train"]}
    again = sum(behaviour(problem) in seen for problem in parts["test"])
    assert again <= 1


def test_the_wording_varies() -> None:
    """With one sentence per step, decoding in parallel would be free; each calculation has at least four tellings."""
    shapes = {sign: Counter() for sign in OPERATIONS}
    lengths = []
    for problem in GENERATORS["tiny_gsm"](2, 1500):
        for sentence in re.split(r"(?<=\.) ", problem["solution"].split("\n")[0]):
            found = CALCULATION.search(sentence)
            assert found, sentence
            shape = re.sub(r"\d+", "N", sentence)
            shape = re.sub(r"\b(Mia|Eva|Zoe|Ben|Leo|Tom|she|he|She|He)\b", "WHO", shape)
            shape = re.sub(r"\b(apple|egg|cake|book|card|coin)s?\b", "THINGS", shape)
            shape = re.sub(r"\b(buys|finds|gets|sells|loses|gives|eats)\b", "DOES", shape)
            shapes[found[2]][re.sub(r"\b(was|were|is|are)\b", "BE", shape)] += 1
            lengths.append(len(sentence.split()))
    for sign, counts in shapes.items():
        common = [shape for shape, count in counts.items() if count > 0.1 * sum(counts.values())]
        assert len(common) >= 4, (sign, counts)
        assert len({shape.split()[0] for shape in common}) >= 4  # they part at the first word
        assert max(counts.values()) < 0.4 * sum(counts.values())
    assert min(lengths) <= 9
    assert max(lengths) >= 16
    assert statistics.stdev(lengths) > 2


def test_a_tokenizer_of_512_gives_nearly_one_token_per_word() -> None:
    sets = {name: split(name, 0, train=800, validation=0, test=100) for name in GENERATORS}
    texts = [p[part] for parts in sets.values() for p in parts["train"] for part in ("prompt", "solution")]
    tokenizer = train_tokenizer(texts, vocab_size=512)
    for name, (prompt, solution) in {"tiny_gsm": ((25, 50), (35, 75)), "tiny_code": ((18, 35), (13, 45))}.items():
        for part, (low, high) in {"prompt": prompt, "solution": solution}.items():
            counts = [len(tokenizer(p[part])["input_ids"]) for p in sets[name]["test"]]  # type: ignore[arg-type]
            words = [len(re.findall(r"\w+|[^\w\s]|\n *", p[part])) for p in sets[name]["test"]]
            assert low <= statistics.mean(counts) <= high
            assert sum(counts) <= 1.12 * sum(words), name
    for number in range(21):
        assert len(tokenizer(f" {number}")["input_ids"]) == 1  # type: ignore[arg-type]


def test_unknown_names_and_sizes_are_refused() -> None:
    with pytest.raises(UserError, match=r"'tiny_gms' is unknown; use one of .*tiny_gsm"):
        split("tiny_gms", 0, train=1, validation=1, test=1)
    with pytest.raises(UserError, match="validation split of tiny_gsm has size -1"):
        split("tiny_gsm", 0, train=1, validation=-1, test=1)


def test_gsm8k_rows_become_problems() -> None:
    rows = [{"question": "How many? ", "answer": "2+3=<<2+3=5>>5\n#### 1,205"}]
    assert gsm8k.convert(rows) == [
        {"id": "gsm8k-0", "prompt": "How many?\n", "solution": "2+3=<<2+3=5>>5\n#### 1,205", "answer": "1205"}
    ]
    with pytest.raises(UserError, match="row 0: no answer"):
        gsm8k.convert([{"question": "How many?"}])
    with pytest.raises(UserError, match="row 1: the answer has no line"):
        gsm8k.convert([*rows, {"question": "How many?", "answer": "five"}])
