"""GSM8K (openai/grade-school-math) as problems of this project: question and answer become prompt and solution."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sbd.errors import UserError

_ANSWER = re.compile(r"#### (-?[0-9.,]+)")


def extract_answer(text: str) -> str | None:
    """The answer by GSM8K's own rule: the number after the first ``####``, without commas; None if there is none."""
    match = _ANSWER.search(text)
    return match.group(1).strip().replace(",", "") if match else None


def convert(rows: Iterable[dict[str, Any]], name: str = "gsm8k") -> list[dict[str, Any]]:
    """Rows with ``question`` and ``answer`` -> problems; calculator annotations (``<<2+3=5>>``) stay, as published.

    Raises UserError that names the row for a missing column or an answer without ``#### number``.
    """
    problems = []
    for number, row in enumerate(rows):
        missing = [key for key in ("question", "answer") if not isinstance(row, dict) or not row.get(key)]
        if missing:
            raise UserError(f"{name}, row {number}: no {' and no '.join(missing)}; GSM8K rows have question and answer")
        answer = extract_answer(row["answer"])
        if answer is None:
            raise UserError(f"{name}, row {number}: the answer has no line '#### number'; is this a GSM8K file?")
        problems.append(
            {
                "id": f"{name}-{number}",
                "prompt": row["question"].strip() + "\n",
                "solution": row["answer"].strip(),
                "answer": answer,
            }
        )
    return problems
