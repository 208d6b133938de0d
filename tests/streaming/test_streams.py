"""The data step of a stream: packed shards, resume, mixture, manifest, and what it refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbd import conversations, streaming
from sbd.cli import main
from sbd.data import PackedRows, encode_prompt
from sbd.errors import UserError
from tests.conftest import CHAT_TEMPLATE
from tests.streaming.helpers import (
    CHAT,
    CODE,
    MATH,
    documents,
    jsonl,
    parquet_file,
    run,
    write,
)


def test_every_document_is_there_once_with_its_prompt_marked(here: Path, chatty: Any) -> None:
    write()
    manifest = run()
    expected = {}
    for place, (rows, format) in enumerate(
        ((MATH, "open_math_reasoning"), (CODE, "open_code_reasoning"), (CHAT, "conversations"))
    ):
        for number, row in enumerate(rows):
            found = conversations.read(row, format)
            assert not isinstance(found, str)
            head = conversations.render(chatty, found.messages, found.thinks)
            expected[place * streaming.SAMPLES + number] = (head, found.answer)
    held = documents("validation")
    assert [d.sample for d in sorted(held, key=lambda d: d.sample)] == [0, 1]
    found = documents()
    assert {d.sample for d in found} == set(expected) - {0, 1}
    for document in [*found, *held]:
        head, answer = expected[document.sample]
        assert document.tokens[: document.prompt_length].tolist() == encode_prompt(chatty, head)
        body = chatty(answer, add_special_tokens=False)["input_ids"]
        assert document.tokens[document.prompt_length :].tolist() == [*body, chatty.eos_token_id]
        assert document.tokens.tolist().count(chatty.bos_token_id) == 1
    assert manifest["documents"] == len(found) == manifest["sources"]["math"]["documents"] + 11
    assert manifest["tokens"] == sum(len(d.tokens) for d in found)
    assert manifest["solution_tokens"] == sum(len(d.tokens) - d.prompt_length for d in found)
    assert manifest["sources"]["math"]["read"] == 9
    assert manifest["sources"]["math"]["origin"]["files"][0]["file"] == "math.parquet"
    rows = PackedRows("results/mini/data/train")
    assert all(sum(len(d.tokens) for d in rows[i]) <= 160 for i in range(len(rows)))
    assert rows.tokenizer.chat_template == CHAT_TEMPLATE.read_text()


def test_the_mixture_has_its_shares_and_every_row(here: Path) -> None:
    write()
    manifest = run()
    rows = PackedRows("results/mini/data/train")
    assert len(rows) == manifest["rows"]
    source = Counter(rows[i][0].sample // streaming.SAMPLES for i in range(len(rows)))
    assert abs(source[0] - 2 * source[1]) <= 2
    assert abs(source[1] - source[2]) <= 1
    for place, name in enumerate(("math", "code", "chat")):
        assert source[place] / manifest["sources"][name]["rows"] == pytest.approx(
            manifest["sources"][name]["passes"], abs=1e-3
        )
        assert manifest["sources"][name]["passes"] >= 1


@pytest.mark.parametrize("counts", [{"a": 10, "b": 3}, {"a": 1, "b": 100}, {"a": 7, "b": 7}])
@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0}, {"a": 0.9, "b": 0.1}])
def test_mixture_repeats_as_evenly_as_it_can(counts: dict[str, int], weights: dict[str, float]) -> None:
    order = streaming.mixture(counts, weights, seed=3)
    times = np.bincount(order, minlength=sum(counts.values()))
    for first, count in ((0, counts["a"]), (counts["a"], counts["b"])):
        part = times[first : first + count]
        assert part.min() >= 1
        assert part.max() - part.min() <= 1
    total = sum(weights.values())
    assert abs((order < counts["a"]).mean() - weights["a"] / total) <= 1 / len(order)
    assert np.array_equal(order, streaming.mixture(counts, weights, seed=3))


def test_without_weights_each_row_once(here: Path) -> None:
    write({name: {"weight": None} for name in ("math", "code", "chat")})
    manifest = run()
    assert not Path("results/mini/data/train/order.npy").exists()
    assert len(documents(unique=False)) == len(documents()) == manifest["documents"]


def test_dropped_rows_are_counted_with_their_reason(here: Path, tokenizer: Any) -> None:
    bad = [
        {"problem": "", "generated_solution": "x"},
        {"problem": "x", "generated_solution": "<think>never ends"},
        {"problem": f"x {tokenizer.mask_token} y", "generated_solution": "z"},
        {"problem": "x", "generated_solution": f"y {tokenizer.eos_token} z"},
        {"problem": "x", "generated_solution": "apples " * 300},
    ]
    parquet_file(here / "data/math.parquet", MATH + bad)
    write()
    made = run()["sources"]["math"]
    assert made["dropped"] == {
        "empty": 1, "special token in the text": 2, "thinking tags do not match": 1, "too long": 1
    }  # fmt: skip
    assert made["read"] == len(MATH) + len(bad) == made["documents"] + 2 + sum(made["dropped"].values())
    write(too_long="refuse")
    with pytest.raises(UserError, match=r"math, row 14: a document of \d+ tokens, over sequence_length 160"):
        run()


def test_a_row_with_half_of_a_character_is_left_out(here: Path) -> None:
    write()
    jsonl(here / "data/code.jsonl", [{**CODE[0], "input": "Print \ud83d ."}, *CODE])
    made = run()["sources"]["code"]
    assert made["dropped"] == {"half of a character in the text": 1}
    assert made["documents"] == len(CODE)


def test_a_stopped_run_goes_on_with_the_missing_pieces_only(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    whole = run()
    reference = {d.sample: d.tokens.tolist() for d in documents()}
    shards = Path("results/mini/data/train/shards")
    files = sorted(path.relative_to(shards) for path in shards.rglob("*.arrow"))
    assert len(files) == 3 + 2 + 2

    # Stopped in the middle: a shard without its mark, one not begun, and no manifest.
    (shards / "math/00001.json").unlink()
    (shards / "chat/00001.arrow").unlink()
    (shards / "chat/00001.json").unlink()
    made: list[tuple[str, int]] = []
    before = streaming.pack_piece

    def counting(recipe: Any, folder: str, held: str, piece: int, number: int, rows: list[Any]) -> None:
        made.append((Path(folder).name, number))
        before(recipe, folder, held, piece, number, rows)

    monkeypatch.setattr(streaming, "pack_piece", counting)
    assert run() == whole
    assert made == [("math", 1), ("chat", 1)]
    assert {d.sample: d.tokens.tolist() for d in documents()} == reference

    # A mark that says nothing is none.
    made.clear()
    for number, content in ((0, b"{}"), (1, b"[]"), (2, b"\xff")):
        (shards / f"math/{number:05d}.json").write_bytes(content)
    assert run() == whole
    assert made == [("math", 0), ("math", 1), ("math", 2)]

    # Other files under the same name, or another recipe: that source alone is made again.
    made.clear()
    jsonl(here / "data/code.jsonl", CODE[:5])
    run()
    assert made == [("code", 0), ("code", 1)]
    made.clear()
    write({"code": {"thinking": "remove"}})
    run()
    assert {name for name, _ in made} == {"code"}
    made.clear()
    write({"code": {"thinking": "remove"}}, sequence_length=170)
    run()
    assert {name for name, _ in made} == {"math", "code", "chat"}


def test_validation_rows_that_were_deleted_come_back(here: Path) -> None:
    write()
    run()
    for path in sorted(Path("results/mini/data/validation").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run()
    assert len(documents("validation")) == 2


@pytest.mark.slow  # starting the processes takes as long as importing torch
def test_two_processes_write_what_one_writes(here: Path) -> None:
    write()
    one = run()
    reference = {path.name + path.parent.name: path.read_bytes() for path in Path("results/mini").rglob("*.arrow")}
    for path in Path("results/mini/data/train/shards").rglob("*.json"):
        path.unlink()
    assert run(workers=2) == one
    found = {path.name + path.parent.name: path.read_bytes() for path in Path("results/mini").rglob("*.arrow")}
    assert found == reference


def test_a_limit_of_rows(here: Path) -> None:
    write({"math": {"rows": 6}})
    made = run()["sources"]["math"]
    assert (made["read"], made["documents"]) == (6, 4)


@pytest.mark.parametrize(
    ("sources", "data", "message"),
    [
        ({"code": {"train": "math.parquet"}}, {}, "math.parquet has no column input and no output; it has generated"),
        ({"code": {"train": "none.jsonl"}}, {}, "no such data file: data/none.jsonl (train of source 'code')"),
        ({"code": {"train": "nobody/nothing"}}, {}, "'nobody/nothing' is no file and could not be read from the hub"),
        ({"math": {"validation": 9}}, {}, "source 'math': validation takes 9 of the 9 documents among its first 9"),
        ({"code": {"weight": None}}, {}, "data: give every streamed source a weight, or none of them"),
        ({"words": {"expected": 3}}, {}, "test.jsonl holds 2 problems, not the 3 of source 'words'"),
        (
            {"math": {"validation": 0}},
            {"sequence_length": 8},
            "none of its 9 rows can be used (dropped: 9 too long)",
        ),
        ({"code": {"format": "conversations"}}, {}, "code.jsonl has no column messages; it has input, output"),
        ({"math": {"test": "a.jsonl"}}, {}, "the format open_math_reasoning has no test split; leave it out"),
        (
            {"x": {"generator": "tiny_gsm", "train": 2, "test": 2}},
            {},
            "streamed and copied training sources do not mix",
        ),
    ],
)
def test_a_mistake_is_one_line(
    here: Path, capfd: pytest.CaptureFixture[str], sources: dict[str, Any], data: dict[str, Any], message: str
) -> None:
    write(sources, **data)
    status = main(["problems", "--experiment", "mini.yaml", "--source", "words"])
    if status == 0:
        capfd.readouterr()
        status = main(["prepare", "--experiment", "mini.yaml"])
    lines = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert status == 2
    assert len(lines) == 1
    assert message in lines[0]
    assert not Path("results/mini/data/train/manifest.json").exists()


def test_a_full_disk_is_named_and_what_was_done_is_kept(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    real, calls = streaming.write_json, []

    def full(path: Path, value: Any) -> None:
        if path.stem.isdigit():
            calls.append(path)
            if len(calls) > 2:
                raise OSError(28, "No space left on device")
        real(path, value)

    monkeypatch.setattr(streaming, "write_json", full)
    with pytest.raises(UserError, match=r"no space left for .*math: make room; the same command goes on"):
        run()
    assert sorted(path.stem for path in Path("results/mini/data/train/shards/math").glob("0*.json")) == [
        "00000",
        "00001",
    ]


def test_damaged_shards_are_refused(here: Path) -> None:
    write()
    run()
    shard = Path("results/mini/data/train/shards/code/00000.arrow")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])
    with pytest.raises(UserError, match=r"shards is damaged .*; run `python -m sbd prepare` again"):
        PackedRows("results/mini/data/train")
    shard.unlink()
    with pytest.raises(UserError, match=r"rows, but the manifest says \d+; run `python -m sbd prepare` again"):
        documents()
