"""The rows that the tests of training share."""

from __future__ import annotations

import pytest

from sbd import data
from tests.test_data import PROBLEMS, write


@pytest.fixture(scope="module")
def rows(tokenizer, tmp_path_factory) -> data.PackedRows:
    folder = tmp_path_factory.mktemp("data")
    data.prepare([write(folder / "train.jsonl", PROBLEMS)], folder / "packed", tokenizer, 64, seed=0)
    return data.PackedRows(folder / "packed")
