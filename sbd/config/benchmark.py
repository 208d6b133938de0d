"""Benchmarks, and which runs and decoders are evaluated on them."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from sbd.selection import Name, Strict


class BenchmarkConfig(Strict):
    """A test set and how it is generated and scored: an lm-eval task file and the source whose test split it reads.

    prompt: the task's text as it is, or as a conversation through the tokenizer's chat template. thinking: what the
    template is told. scored: by the job that generates, or by a job of its own (code, so that no GPU waits for it).
    """

    task: str
    source: Name
    max_new_tokens: PositiveInt
    prompt: Literal["text", "chat"] = "text"
    thinking: bool = False
    scored: Literal["at_once", "apart"] = "at_once"
    limit: PositiveInt | None = None
    batch_size: PositiveInt = 64
    label: str | None = None


class EvaluationConfig(Strict):
    """Every run with every decoder, on every benchmark (or those named)."""

    runs: list[Name]
    decoders: list[Name]
    benchmarks: list[Name] | None = None
    models: list[Name] | None = None
