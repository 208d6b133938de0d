"""Rows of files and of the hub, from any row on; every mistake in them is named before or where it is met."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pytest
from pyarrow import parquet

from sbd.errors import UserError
from sbd.sources import check_columns, open_rows

ROWS = [{"problem": f"What is {n}?", "generated_solution": f"It is {n}."} for n in range(25)]


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(path: Path, rows: list[dict], group: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "folder", "pattern", "mixed"])
def test_rows_are_those_of_the_files_from_any_row_on(tmp_path: Path, kind: str) -> None:
    if kind == "jsonl":
        jsonl(tmp_path / "a.jsonl", ROWS)
        name = "a.jsonl"
    elif kind == "parquet":
        table(tmp_path / "a.parquet", ROWS)
        name = "a.parquet"
    else:
        write = {"folder": table, "pattern": jsonl, "mixed": table}[kind]
        suffix = "jsonl" if kind == "pattern" else "parquet"
        write(tmp_path / f"d/cot-0.{suffix}", ROWS[:10])
        (jsonl if kind == "mixed" else write)(tmp_path / f"d/cot-1.{'jsonl' if kind == 'mixed' else suffix}", ROWS[10:])
        jsonl(tmp_path / "d/README.md", [{"no": "data"}])
        name = f"d/cot-*.{suffix}" if kind == "pattern" else "d"
    rows = open_rows(name, tmp_path)
    for start in (0, 1, 4, 9, 10, 11, 24, 25, 40):
        assert list(rows.read(start)) == ROWS[start:]
    assert list(rows.read(3, 12)) == ROWS[3:12]
    assert list(rows.read(12, 12)) == []
    assert [file["bytes"] > 0 for file in rows.origin["files"]] == [True] * len(rows.files)


def test_a_data_set_of_the_hub_is_read_at_the_commit_that_its_revision_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def info(self: Any, name: str, revision: str) -> Any:
        asked.append((name, revision))
        return SimpleNamespace(sha="0123abc")

    def load(name: str, configuration: str | None, **how: Any) -> Any:
        asked.append((name, configuration, how))
        return datasets.IterableDataset.from_generator(lambda: iter(ROWS))

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    monkeypatch.setattr(datasets, "load_dataset", load)
    rows = open_rows("nvidia/OpenCodeReasoning:split_0", ".", split="split_0", revision="v1")
    assert list(rows.read(20)) == ROWS[20:]
    assert asked[0] == ("nvidia/OpenCodeReasoning", "v1")
    how = {"split": "split_0", "revision": "0123abc", "streaming": True}
    assert asked[1] == ("nvidia/OpenCodeReasoning", "split_0", how)
    assert rows.origin == {
        "name": "nvidia/OpenCodeReasoning", "configuration": "split_0", "split": "split_0", "revision": "v1",
        "commit": "0123abc",
    }  # fmt: skip


def test_a_hub_that_is_out_of_reach_and_a_gated_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="'nobody/nothing' is no file and could not be read from the hub at revision x"):
        open_rows("nobody/nothing", ".", revision="x")

    class GatedRepoError(Exception):
        pass

    def refuse(*_: Any, **__: Any) -> None:
        raise GatedRepoError("Access to it is restricted")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", refuse)
    with pytest.raises(UserError, match="it is gated: accept its terms on its page and give a token"):
        open_rows("nobody/nothing", ".")


def test_all_that_is_read_of_a_revision_is_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub moves on while an experiment runs; what it has once resolved stays."""
    heads = iter(f"{number:040x}" for number in range(10))
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(sha=next(heads)))
    pins = tmp_path / "revisions"
    commits = [open_rows("a/b", ".", split=split, pins=pins).origin["commit"] for split in ("train", "test", "train")]
    assert commits == [f"{0:040x}"] * 3
    assert open_rows("a/b", ".", revision="v2/x", pins=pins).origin["commit"] == f"{1:040x}"
    assert open_rows("a/c", ".", pins=pins).origin["commit"] == f"{2:040x}"
    assert open_rows("a/b", ".").origin["commit"] == f"{3:040x}"

    def slower(*_: Any, **__: Any) -> Any:
        # While this one asks, another job has got and kept its answer.
        (pins / "dataset--a--d--main").write_text(f"{8:040x}\n")
        return SimpleNamespace(sha=f"{9:040x}")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", slower)
    assert open_rows("a/d", ".", pins=pins).origin["commit"] == f"{8:040x}"
    assert not list(pins.glob(".*"))


def test_mistakes_in_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such data file: .*a.parquet \(train of source 's'\)"):
        open_rows("a.parquet", tmp_path, what="train of source 's'")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no file of a known kind"):
        open_rows("empty", tmp_path)
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(UserError, match="only JSON lines and Parquet are read"):
        open_rows("a.csv", tmp_path)
    cut = jsonl(tmp_path / "cut.jsonl", ROWS[:3])
    cut.write_text(cut.read_text()[:-5])
    with pytest.raises(UserError, match=r"cut.jsonl, line 3: not JSON"):
        list(open_rows("cut.jsonl", tmp_path).read())
    cut.write_bytes(b'{"a": "\xe9"}\n')
    with pytest.raises(UserError, match=r"cut.jsonl, line 1: not JSON \(.*can't decode byte 0xe9"):
        list(open_rows("cut.jsonl", tmp_path).read())
    broken = table(tmp_path / "broken.parquet", ROWS)
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"broken.parquet: not readable as Parquet"):
        list(open_rows("broken.parquet", tmp_path).read())
    jsonl(tmp_path / "list.jsonl", [[1]])
    with pytest.raises(UserError, match=r"list.jsonl, row 1: a row is an object"):
        list(open_rows("list.jsonl", tmp_path).read())


def test_the_same_content_is_the_same_data(tmp_path: Path) -> None:
    """A copy, or a file that was only touched, is no other data to go on with; one number in it is."""
    path = jsonl(tmp_path / "a.jsonl", ROWS)
    before = open_rows("a.jsonl", tmp_path).origin
    os.utime(path, (1, 1))
    assert open_rows("a.jsonl", tmp_path).origin == before
    path.write_text(path.read_text().replace("3", "4", 1))
    assert path.stat().st_size == before["files"][0]["bytes"]
    assert open_rows("a.jsonl", tmp_path).origin != before


def test_missing_columns_are_named_with_those_that_are_there(tmp_path: Path) -> None:
    table(tmp_path / "a.parquet", ROWS)
    rows = open_rows("a.parquet", tmp_path)
    check_columns(rows, ["problem", "generated_solution"])
    with pytest.raises(UserError, match="has no column input and no output; it has generated_solution, problem"):
        check_columns(rows, ["problem", "input", "output"])
    jsonl(tmp_path / "none.jsonl", [])
    with pytest.raises(UserError, match=r"none.jsonl holds no row"):
        check_columns(open_rows("none.jsonl", tmp_path), ["problem"])
