"""Tokenizer, packing and prepared rows: nothing is lost, nothing is cut off, bad files are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbd import data
from sbd.errors import UserError
from sbd.files import write_json

PROBLEMS = [
    {
        "prompt": f"Mia has {n} apples and buys {n + 1} more .\n",
        "solution": f"The answer is {2 * n + 1} ." + " So it is ." * (n % 4),
    }
    for n in range(20)
]


def write(path: Path, problems: list[dict]) -> Path:
    path.write_text("".join(json.dumps(problem) + "\n" for problem in problems), encoding="utf-8")
    return path


def test_special_tokens_are_distinct_and_mean_what_they_say(tokenizer) -> None:
    special = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id]
    assert len(set(special)) == 4
    assert max(special) < len(tokenizer)
    text = "Zoë has 12 apples .\n\tThe answer is 7 ."
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_document_is_bos_prompt_solution_eos(tokenizer) -> None:
    document = data.encode_document(tokenizer, "Mia has 3 apples .\n", "The answer is 3 .", 5)
    tokens = document.tokens.tolist()
    assert tokens.count(tokenizer.bos_token_id) == 1
    assert tokens[: document.prompt_length] == data.encode_prompt(tokenizer, "Mia has 3 apples .\n")
    assert tokenizer.decode(tokens[document.prompt_length : -1]) == "The answer is 3 ."
    assert tokens[-1] == tokenizer.eos_token_id
    assert document.sample == 5


def test_an_empty_prompt_and_a_literal_mask_token_are_refused(tokenizer) -> None:
    with pytest.raises(UserError, match="prompt is empty"):
        data.encode_prompt(tokenizer, "")
    with pytest.raises(UserError, match=r"a prompt holds \\udcff, half of a character"):
        data.encode_prompt(tokenizer, "caf\udcff")  # as a byte of another encoding on the command line
    with pytest.raises(UserError, match="mask token"):
        data.encode_document(tokenizer, "Mia <|mask|> apples", "The answer is 3 .", 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_packing_keeps_every_document_once_and_fits(lengths: list[int]) -> None:
    rows = data.pack(lengths, 30)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    totals = [sum(lengths[index] for index in row) for row in rows]
    assert max(totals) <= 30
    # Best fit never leaves two rows that one row could hold, so at most one is half empty.
    assert sum(total <= 15 for total in totals) <= 1


def test_packing_refuses_what_does_not_fit() -> None:
    with pytest.raises(UserError, match="document 1 has 31 tokens"):
        data.pack([3, 31], 30)


def test_prepared_rows_give_the_documents_back(tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "train.jsonl", PROBLEMS)
    manifest = data.prepare([source], tmp_path / "packed", tokenizer, 64, seed=3)
    rows = data.PackedRows(tmp_path / "packed")
    documents = [document for index in range(len(rows)) for document in rows[index]]
    texts = {str(rows.tokenizer.decode(document.tokens[1:-1])) for document in documents}
    assert texts == {problem["prompt"] + problem["solution"] for problem in PROBLEMS}
    assert sorted(document.sample for document in documents) == list(range(20))
    assert manifest["tokens"] == sum(len(document.tokens) for document in documents)
    assert manifest["solution_tokens"] == sum(len(d.tokens) - d.prompt_length for d in documents)
    assert all(sum(len(d.tokens) for d in rows[index]) <= 64 for index in range(len(rows)))
    assert manifest["dropped_too_long"] == 0
    assert not list(tmp_path.glob(".*"))


def test_long_documents_are_refused_or_counted(tokenizer, tmp_path: Path) -> None:
    source = write(tmp_path / "train.jsonl", PROBLEMS)
    longest = max(len(data.encode_document(tokenizer, p["prompt"], p["solution"], 0).tokens) for p in PROBLEMS)
    with pytest.raises(UserError, match="sequence_length"):
        data.prepare([source], tmp_path / "packed", tokenizer, longest - 1, seed=0)
    assert not (tmp_path / "packed").exists()
    manifest = data.prepare([source], tmp_path / "packed", tokenizer, longest - 1, seed=0, too_long="drop")
    assert manifest["dropped_too_long"] > 0
    assert manifest["documents"] + manifest["dropped_too_long"] == 20


def test_bad_files_are_named(tokenizer, tmp_path: Path) -> None:
    cases = {
        "missing.jsonl": (None, "no such data file"),
        "empty.jsonl": ("", "holds no problem"),
        "cut.jsonl": (json.dumps(PROBLEMS[0]) + "\n" + json.dumps(PROBLEMS[1])[:30], "line 2: not JSON"),
        "other.jsonl": ('{"question": "x", "solution": "y"}\n', "line 1: prompt missing"),
        "list.jsonl": ("[1]\n", "line 1: no problem such as"),
        "empty_text.jsonl": ('{"prompt": "x", "solution": ""}\n', "line 1: solution missing or empty"),
        "long.jsonl": ('{"n": ' + "1" * 5000 + "}\n", "line 1: not JSON"),
        "": (None, "is a folder"),
        "number.jsonl": (
            '{"prompt": 5, "solution": "y"}\n',
            "line 1: prompt is no text; each problem needs a text",
        ),
    }
    for name, (text, message) in cases.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=message):
            data.read_problems(tmp_path / name)
    (tmp_path / "latin.jsonl").write_bytes(json.dumps(PROBLEMS[0]).encode() + b'\n{"prompt": "\xe9"}\n')
    with pytest.raises(UserError, match=r"line 2: not UTF-8 .*can't decode byte 0xe9"):
        data.read_problems(tmp_path / "latin.jsonl")
    (tmp_path / "half.jsonl").write_text(json.dumps(PROBLEMS[0]) + "\n" + json.dumps({**PROBLEMS[1], "id": "x\ud83d"}))
    with pytest.raises(UserError, match=r"half\.jsonl, line 2: \\ud83d is half of a character; take it out"):
        data.read_problems(tmp_path / "half.jsonl")
    (tmp_path / "half.jsonl").write_text(json.dumps({**PROBLEMS[1], "id": "x\U0001f600"}))  # both halves
    assert data.read_problems(tmp_path / "half.jsonl")[0]["id"] == "x\U0001f600"
    with pytest.raises(UserError, match="manifest"):
        data.PackedRows(tmp_path)


def test_half_of_a_character_is_written_as_json_reads_it(tmp_path: Path) -> None:
    value = {"text": "a \ud800 b \U0001f600 \\ud800"}
    write_json(tmp_path / "half.json", value)
    assert json.loads((tmp_path / "half.json").read_text(encoding="utf-8")) == value


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer/tokenizer.json"])
def test_prepared_data_that_is_cut_off_is_named(tokenizer, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "packed"
    data.prepare([write(tmp_path / "train.jsonl", PROBLEMS)], folder, tokenizer, 96, seed=0)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        UserError, match=rf"packed/{name.partition('/')[0]} is damaged .*; run `python -m sbd prepare` again"
    ):
        data.PackedRows(folder)


@pytest.mark.parametrize("content", ["{}", "[]", "3", '{"streamed": true, "rows": 1, "sources": 2}'])
@pytest.mark.parametrize("name", ["manifest.json", "tokenizer/tokenizer.json", "rows/state.json"])
def test_prepared_data_of_another_shape_is_named(tokenizer, tmp_path: Path, name: str, content: str) -> None:
    folder = tmp_path / "packed"
    data.prepare([write(tmp_path / "train.jsonl", PROBLEMS)], folder, tokenizer, 96, seed=0)
    (folder / name).write_text(content)
    with pytest.raises(
        UserError, match=r"packed/(manifest\.json|tokenizer|rows|shards) is damaged .*run `make it` again"
    ):
        data.PackedRows(folder, "make it")


def test_row_order_is_one_permutation_per_epoch_and_a_function_of_the_step() -> None:
    batches = [data.row_order(10, 4, seed=2, step=step) for step in range(10)]
    seen = np.concatenate(batches)
    assert sorted(seen[:10]) == sorted(seen[10:20]) == sorted(seen[20:30]) == list(range(10))
    assert not np.array_equal(seen[:10], seen[10:20])
    assert np.array_equal(batches[7], data.row_order(10, 4, seed=2, step=7))
