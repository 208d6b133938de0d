"""Rows of published sets as conversations, and the template they are written with."""

from __future__ import annotations

from typing import Any

import pytest

from sbd import conversations
from sbd.data import encode_prompt
from tests.streaming.helpers import (
    CHAT,
    CODE,
    MATH,
)


def test_rows_of_the_three_sets_become_conversations() -> None:
    messages, answer, thinks = conversations.read(MATH[3], "open_math_reasoning")
    assert messages == [{"role": "user", "content": "Mia has 3 apples . Count them ."}]
    assert (answer, thinks) == ("One by one .\n</think>\nThe answer is 3 .", True)
    found = conversations.read(CODE[0], "open_code_reasoning", "remove")
    assert found == ([{"role": "user", "content": "Print 30 ."}], "```python\nprint(30)\n```", False)
    found = conversations.read(CHAT[0], "conversations")
    assert found == (CHAT[0]["messages"][:-1], "I am sure that 50 is .", False)


@pytest.mark.parametrize(
    ("format", "row", "reason"),
    [
        ("open_math_reasoning", {"problem": "", "generated_solution": "x"}, "empty"),
        ("open_math_reasoning", {"problem": "x", "generated_solution": None}, "empty"),
        ("open_math_reasoning", {"problem": "x", "generated_solution": "<think>a"}, "thinking tags do not match"),
        ("open_math_reasoning", {"problem": "x", "generated_solution": "a</think>b"}, "thinking tags do not match"),
        (
            "open_math_reasoning",
            {"problem": "x", "generated_solution": "b <think>a</think>b"},
            "thinking tags do not match",
        ),
        (
            "open_math_reasoning",
            {"problem": "x", "generated_solution": "<think>a</think> "},
            "nothing after the thought",
        ),
        ("open_code_reasoning", {"input": "-", "output": "x"}, "empty"),
        ("conversations", {"messages": []}, "empty"),
        ("conversations", {"messages": [{"role": "user", "content": "x"}]}, "no answer at the end"),
        ("conversations", {"messages": [{"role": "assistant", "content": "x"}]}, "no answer at the end"),
        ("conversations", {"messages": [{"role": "tool", "content": "x"}]}, "unknown role"),
    ],
)
def test_what_cannot_be_used_has_a_reason(format: str, row: dict[str, Any], reason: str) -> None:
    assert conversations.read(row, format) == reason


def test_the_template_opens_a_thought_or_leaves_it_empty(chatty: Any) -> None:
    eos = chatty.eos_token
    before = CHAT[0]["messages"][:-1]
    turns = f"System:\nBe brief .\n\nUser:\nIs 50 a number ?\n\nAssistant:\nYes .{eos}\n\nUser:\nSure ?\n\nAssistant:\n"
    assert conversations.render(chatty, before, True) == turns + "<think>\n"
    assert conversations.render(chatty, before, False) == turns + "<think>\n\n</think>\n\n"
    # A template that knows nothing of thoughts, and one that writes the start token itself.
    chatty.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
    text = conversations.render(chatty, before, True)
    assert text.endswith("Sure ?\n<think>\n")
    assert encode_prompt(chatty, text).count(chatty.bos_token_id) == 1
