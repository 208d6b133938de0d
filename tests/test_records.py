"""Records: their interval, what is refused, and the table made of them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sbd import columns, records
from sbd.errors import UserError
from sbd.records import Key, Record

KEY = {"scale": "tiny", "model": "llama", "run": "sbd", "decoder": "gamma_0.1", "benchmark": "tiny_gsm", "seed": 0}


def line(correct: float, tokens: int = 10, passes: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "correct": correct,
        "tokens": tokens,
        "forward_passes": passes,
        "prefill_passes": 1,
        "truncated": False,
        **more,
    }


def record(lines: list[dict[str, Any]] | None = None, **key: Any) -> Record:
    return Record(
        key=Key(**{**KEY, **key}),
        **records.summarise(lines or [line(1.0), line(0.0, 30, 6)], seconds=2.0),
        metric="exact_match,answer",
        decoder_settings={"kind": "SetBlock", "block_size": 16},
        batch_size=8,
        provenance=records.provenance(device="cpu", dtype="float32", threads=1, config_hash="abc"),
    )


def write(folder: Path, **key: Any) -> Path:
    made = record(**key)
    path = made.key.path(folder)
    records.write_record(made, path)
    return path


def test_sums_ratios_and_outcomes() -> None:
    lines = [line(1.0, 10, 4, outcome="passed"), line(0.0, 30, 6, outcome="timeout", truncated=True), line(1, 5, 5)]
    summary = records.summarise(lines, seconds=9.0)
    assert summary["n"] == 3
    assert summary["score"] == pytest.approx(200 / 3)
    assert (summary["tokens"], summary["forward_passes"], summary["prefill_passes"]) == (45, 15, 3)
    assert summary["tokens_per_forward"] == 3.0
    assert summary["mean_tokens_per_forward"] == pytest.approx((2.5 + 5 + 1) / 3)
    assert summary["tokens_per_second"] == 5.0
    assert summary["truncated"] == 1
    assert summary["outcomes"] == {"passed": 1, "timeout": 1}
    with pytest.raises(UserError, match="no problem was evaluated"):
        records.summarise([], seconds=1.0)


def test_a_likelihood_task_has_no_tokens_per_forward() -> None:
    made = record([line(1.0, 0, 0), line(0.0, 0, 0)])
    assert made.tokens_per_forward is None
    assert made.tokens_per_second is None


def test_written_and_read_again(tmp_path: Path) -> None:
    made = record()
    path = made.key.path(tmp_path)
    assert path == tmp_path / "tiny/records/llama/sbd/gamma_0.1/tiny_gsm/record.json"
    records.write_record(made, path)
    assert records.read_record(path) == made
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]
    known = made.provenance
    assert known.packages["torch"].startswith("2.")
    assert {"transformers", "tokenizers", "lm_eval", "numpy"} <= set(known.packages)
    assert len(known.git_revision) == 40 or known.git_revision == "unknown"
    assert "/" not in json.dumps(known.model_dump())  # no path of this machine


def test_hashes_follow_the_contents(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    weights, task = tmp_path / "checkpoint" / "model.bin", tmp_path / "task.yaml"

    def hashes() -> tuple[str, str]:
        made = records.provenance(
            device="cpu", dtype="float32", threads=1, task=task, checkpoint=tmp_path / "checkpoint"
        )
        return made.task_hash, made.checkpoint_hash

    weights.write_bytes(b"1")
    task.write_text("a")
    first = hashes()
    assert all(first)
    assert hashes() == first
    weights.write_bytes(b"2")
    assert hashes()[0] == first[0]
    assert hashes()[1] != first[1]


def test_the_table(tmp_path: Path) -> None:
    write(tmp_path, decoder="gamma_0.1")
    write(tmp_path, decoder="ntp")
    keys = [Key(**{**KEY, "decoder": decoder}) for decoder in ("ntp", "gamma_0.1")]
    rows = records.collect(tmp_path, expected=keys)
    assert [row["decoder"] for row in rows] == ["ntp", "gamma_0.1"]
    assert tuple(rows[0])[: len(columns.RECORDS)] == columns.RECORDS
    records.write_csv(rows, tmp_path / "table1.csv")
    text = (tmp_path / "table1.csv").read_text()
    assert text.splitlines()[0] == (
        "model,run,decoder,benchmark,n,score,score_low,score_high,tokens_per_forward,"
        "tokens,forward_passes,prefill_passes,seconds,tokens_per_second"
    )
    read = list(csv.DictReader(text.splitlines()))
    assert read[0]["decoder"] == "ntp"
    assert float(read[0]["tokens_per_forward"]) == 4.0
    assert float(read[0]["score"]) == 50.0


def test_a_missing_record_is_named_with_its_remedy(tmp_path: Path) -> None:
    write(tmp_path)
    missing = Key(**{**KEY, "decoder": "unlimited"})
    with pytest.raises(UserError, match=r"decoder unlimited.*run `make results/tiny/.*/unlimited/.*record.json`"):
        records.collect(tmp_path, [Key(**KEY), missing], lambda path: f"make {path}")
    with pytest.raises(UserError, match=r"run `snakemake .*record.json --config experiment=FILE`"):
        records.collect(tmp_path, [missing])
    with pytest.raises(UserError, match="no records in"):
        records.collect(tmp_path / "nothing")
    with pytest.raises(UserError, match="no record at"):
        records.collect([tmp_path / "record.json"])


def test_two_records_of_one_evaluation_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path)
    copy = tmp_path / "copy" / "record.json"
    copy.parent.mkdir()
    copy.write_text(one.read_text())
    with pytest.raises(UserError, match="records of the same evaluation"):
        records.collect([one, copy])
    assert len(records.collect([one])) == 1


def test_a_record_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path)
    other = Key(**{**KEY, "model": "qwen3"}).path(tmp_path)
    other.parent.mkdir(parents=True)
    one.rename(other)
    with pytest.raises(UserError, match="is the record of model llama"):
        records.collect(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 0}, "schema version 0, this code reads 1"),
        ({"score": float("nan")}, "score"),
        ({"score": None}, "score"),
        ({"score": 101}, "score"),
        ({"score": 99.9, "score_high": 60.0}, "outside its interval"),
        ({"n": 0}, "n: "),
        ({"tokens": -1}, "tokens"),
        ({"tokens_per_forward": float("inf")}, "tokens_per_forward"),
        ({"extra": 1}, "extra"),
        ({"key": {**KEY, "model": ""}}, "key.model"),
        ({"provenance": None}, "provenance"),
    ],
)
def test_a_wrong_record_is_refused_with_its_file_and_field(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=message) as caught:
        records.collect(tmp_path)
    assert str(path) in str(caught.value)
    assert "snakemake" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 1}'])
def test_a_damaged_record_is_refused(text: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(text)
    with pytest.raises(UserError, match=r"record\.json"):
        records.read_record(path)


def test_records_need_no_torch() -> None:
    code = "import sys, sbd.records; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1]).returncode == 0
