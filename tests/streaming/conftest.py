"""A folder with files of each format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.streaming.helpers import (
    CHAT,
    CODE,
    MATH,
    QUESTION,
    jsonl,
    parquet_file,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Path:
    """A folder with local files of the three sets, a tokenizer to load, and a benchmark."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    parquet_file(tmp_path / "data/math.parquet", MATH)
    jsonl(tmp_path / "data/code.jsonl", CODE)
    parquet_file(tmp_path / "data/chat.parquet", CHAT)
    jsonl(
        tmp_path / "data/test.jsonl",
        [{"question": QUESTION, "answer": "#### 6"}, {"question": "One ?", "answer": "#### 1"}],
    )
    return tmp_path
