"""Rows of public training sets -> a conversation, its answer, and whether the answer thinks first.

What cannot be used is left out with a reason, which the manifest counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

OPEN, CLOSE = "<think>", "</think>"
_ROLES = {"system", "user", "assistant"}


class Conversation(NamedTuple):
    """Messages up to the answer, the answer without its opening tag, and whether it begins with a thought."""

    messages: list[dict[str, str]]
    answer: str
    thinks: bool


def read(row: dict[str, Any], format: str, thinking: str = "keep") -> Conversation | str:
    """The conversation of a row, or the reason why there is none.

    Of a conversation of several turns the last answer is learnt, and all before it is prompt.
    """
    if format == "conversations":
        messages = row.get("messages")
        if not isinstance(messages, list) or not messages:
            return "empty"
        if not all(isinstance(m, dict) and m.get("role") in _ROLES for m in messages):
            return "unknown role"
        messages = [{"role": m["role"], "content": m.get("content")} for m in messages]
        *before, last = messages
        if last["role"] != "assistant" or not before or before[-1]["role"] != "user":
            return "no answer at the end"
    else:
        question, answer = ("problem", "generated_solution") if format == "open_math_reasoning" else ("input", "output")
        before, last = [{"role": "user", "content": row.get(question)}], {"content": row.get(answer)}
        # OpenCodeReasoning stands "-" where the question is of a set that it may not copy (its split_1).
        if before[0]["content"] == "-":
            return "empty"
    if not all(isinstance(m["content"], str) and m["content"].strip() for m in (*before, last)):
        return "empty"
    return _split_thought(before, str(last["content"]).strip(), thinking)


def _split_thought(before: list[dict[str, Any]], answer: str, thinking: str) -> Conversation | str:
    opened, closed = answer.count(OPEN), answer.count(CLOSE)
    if opened == closed == 0:
        return Conversation(before, answer, False)
    if (opened, closed) != (1, 1) or not answer.startswith(OPEN):
        return "thinking tags do not match"
    inside = answer.removeprefix(OPEN).lstrip("\n")
    after = inside.partition(CLOSE)[2].strip()
    if not after:
        return "nothing after the thought"
    return Conversation(before, inside, True) if thinking == "keep" else Conversation(before, after, False)


def render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], thinks: bool) -> str:
    """The prompt text of a conversation, up to where the answer begins (behind the opening tag of a thought)."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=thinks)
    text = str(text)
    return text + f"{OPEN}\n" if thinks and not text.rstrip().endswith(OPEN) else text


def after_thought(text: str) -> str:
    """What stands behind the thought of an answer that was asked to think; nothing where the thought did not end."""
    return text.rpartition(CLOSE)[2] if CLOSE in text else ""
