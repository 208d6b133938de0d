"""How programs are judged: printed lines, calls, private tests."""

from __future__ import annotations

import base64
import pickle
import zlib
from typing import Any

import pytest

from sbd.errors import UserError
from sbd.evaluation import code
from sbd.sandbox import run_program
from tests.benchmarks.helpers import (
    ADD,
    LCB,
    encoded,
    fenced,
)


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
