"""Scores of code benchmarks: programs run in :mod:`sbd.sandbox`, from saved texts, on any processor."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import re
import zlib
from decimal import Decimal, InvalidOperation
from typing import Any

from sbd.errors import UserError
from sbd.sandbox import STATUSES, Limits, Outcome, run_program

LIMITS = Limits(wall_seconds=20.0, cpu_seconds=15, memory_bytes=1 << 30, output_bytes=1 << 20)
"""Of a program with all its tests (HumanEval+ has up to some thousand inputs)."""

TEST_LIMITS = Limits(wall_seconds=12.0, cpu_seconds=6, memory_bytes=1 << 30, output_bytes=16 << 20)
"""Of one test of LiveCodeBench, whose own runner allows six seconds."""

PRELUDE = (
    "import sys, math, re, string, random, heapq, bisect, copy, json, operator, statistics, io, datetime\n"
    "import collections, itertools, functools\n"
    + "".join(
        f"from {module} import *\n"
        for module in ("typing", "collections", "itertools", "functools", "heapq", "bisect", "math")
    )
    + "sys.setrecursionlimit(50000)\n"
)
"""What a solution may use without importing it, as judges of such contests provide."""

_FENCE = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)


def scores(outcome: Outcome) -> dict[str, float]:
    """pass@1, and how the run ended: 1.0 for one of the statuses."""
    return {"pass_at_1": float(outcome.passed), **{status: float(outcome.status == status) for status in STATUSES}}


def humaneval(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """A program of HumanEval (or HumanEval+) with its ``check`` function."""
    return scores(_run(f"{_code(results)}\n{doc['test']}\ncheck({doc['entry_point']})\n"))


def mbpp(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """A program of MBPP with the assertions of its problem."""
    imports = "\n".join(doc.get("test_imports") or [])
    return scores(_run("\n".join([imports, _code(results), *doc["test_list"]]) + "\n"))


def livecodebench(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """The last fenced block of an answer, on every public and private test; the first that fails decides."""
    code = last_block(_code(results))
    if not code.strip():
        return scores(Outcome("failed", "the answer has no code block", "", 0.0))
    name = json.loads(doc.get("metadata") or "{}").get("func_name")
    outcome = Outcome("error", "the problem has no test", "", 0.0)
    for test in contest_tests(doc):
        outcome = _call(code, name, test) if name else _standard_input(code, test)
        if not outcome.passed:
            break
    return scores(outcome)


def last_block(text: str) -> str:
    """The content of the last complete fenced block; nothing without one."""
    found = _FENCE.findall(text)
    return found[-1] if found else ""


def contest_tests(doc: dict[str, Any]) -> list[dict[str, str]]:
    """Public and private tests of a LiveCodeBench row, each with ``input`` and ``output``."""
    try:
        return json.loads(doc["public_test_cases"]) + _private(doc["private_test_cases"])
    except (KeyError, TypeError, ValueError, zlib.error, binascii.Error, pickle.UnpicklingError, EOFError) as error:
        raise UserError(
            f"the tests of LiveCodeBench problem {doc.get('id')} cannot be read ({type(error).__name__}: {error}); "
            "copy its file again"
        ) from None


class _Plain(pickle.Unpickler):
    """Text and containers only: a data file has no business to name code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _private(text: str) -> list[dict[str, str]]:
    """JSON as it is, or as it is published: pickled, compressed and in base 64."""
    if text.lstrip().startswith("["):
        return json.loads(text)
    plain = _Plain(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()
    return json.loads(plain) if isinstance(plain, str | bytes) else plain


def _standard_input(code: str, test: dict[str, str]) -> Outcome:
    outcome = run_program(PRELUDE + code, test["input"], TEST_LIMITS)
    if outcome.passed and not same_output(outcome.output, test["output"]):
        return Outcome("failed", f"printed {outcome.output[:200]!r}, expected {test['output'][:200]!r}", "", 0.0)
    return outcome


def _call(code: str, name: str, test: dict[str, str]) -> Outcome:
    """A method of ``Solution`` (or a function): arguments are lines of JSON, the result is JSON (tuples are lists)."""
    driver = (
        f"\n_target = Solution().{name} if 'Solution' in globals() else {name}\n"
        "_arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]\n"
        "print('\\n' + json.dumps(_target(*_arguments)))\n"
    )
    # The program's names may hide ours.
    driver = driver.replace("json.", "__import__('json').").replace("sys.", "__import__('sys').")
    outcome = run_program(PRELUDE + code + driver, test["input"], TEST_LIMITS)
    if not outcome.passed:
        return outcome
    last = outcome.output.rstrip("\n").rpartition("\n")[2]
    try:
        equal = json.loads(last) == json.loads(test["output"])
    except json.JSONDecodeError:
        equal = False
    return outcome if equal else Outcome("failed", f"returned {last[:200]}, expected {test['output'][:200]}", "", 0.0)


def same_output(printed: str, expected: str) -> bool:
    """Line by line without outer blanks; lines of numbers may write them differently (1.0 and 1)."""
    ours, theirs = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(ours) == len(theirs) and all(
        a == b or _numbers(a) == _numbers(b) is not None for a, b in zip(ours, theirs, strict=True)
    )


def _numbers(line: str) -> list[Decimal] | None:
    try:
        return [Decimal(word) for word in line.split()]
    except InvalidOperation:
        return None


def _code(results: list[Any]) -> str:
    """The text of a problem, through filters that keep lists and those that do not."""
    first = results[0]
    return str(first[0] if isinstance(first, list) else first)


def _run(source: str) -> Outcome:
    """The tests of HumanEval+ compare with numpy; no other package is at hand."""
    return run_program(source, limits=LIMITS, packages=("numpy",) if "numpy" in source else ())
