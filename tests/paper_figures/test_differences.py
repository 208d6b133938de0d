"""Paired differences from made-up generations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import paper_file

from paper_figures import inputs
from sbd import columns, differences
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.records import write_csv
from sbd.selection import Arm


def write_generations(experiment, arm: tuple[str, str], correct: list[int], passes: int = 20) -> None:  # type: ignore[no-untyped-def]
    for model in experiment.models:
        folder = experiment.record_folder(model, *arm, "tiny_gsm")
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            {"id": f"p{i}", "correct": bool(c), "tokens": 40 + i, "forward_passes": passes}
            for i, c in enumerate(correct)
        ]
        (folder / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))


def test_differences_are_paired_by_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load_experiment(paper_file(tmp_path))
    monkeypatch.chdir(tmp_path)
    only_gsm = experiment.model_copy(update={"benchmarks": {"tiny_gsm": experiment.benchmarks["tiny_gsm"]}})
    baseline, arm = experiment.table1.rows[0], experiment.table1.rows[3]
    write_generations(experiment, ("ntp", "ntp"), [1, 1, 1, 0] * 25)
    write_generations(experiment, ("sbd", "gamma_0.1"), [1, 1, 0, 0] * 20 + [1, 1, 1, 1] * 5)
    rows = differences.collect(only_gsm, [(arm, baseline)])
    assert [row["model"] for row in rows] == ["llama-tiny", "qwen3-tiny"]
    first = rows[0]
    assert (first["n"], first["only_baseline"], first["only_arm"]) == (100, 20, 5)
    assert first["difference"] == pytest.approx(-15)
    assert first["low"] < -15 < first["high"] < 0
    assert first["p_value"] < 0.01
    assert first["tokens_per_forward"] == pytest.approx((40 + 49.5) / 20)
    assert first["tokens_per_forward_low"] < first["tokens_per_forward"] < first["tokens_per_forward_high"]
    write_csv(rows, tmp_path / "differences.csv", columns.DIFFERENCES)
    read = inputs.read_differences(tmp_path / "differences.csv")
    assert read.loc[("qwen3-tiny", "tiny_gsm", "sbd", "gamma_0.1", "ntp", "ntp")]["difference"] == pytest.approx(-15)
    write_generations(experiment, ("sbd", "gamma_0.1"), [1] * 99)
    with pytest.raises(UserError, match="different problems"):
        differences.collect(only_gsm, [(arm, baseline)])


def test_a_score_that_is_no_number_and_a_repeated_problem_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"
    path.write_text('{"id": "a", "correct": 1}\n{"id": "b", "correct": NaN}\n')
    with pytest.raises(UserError, match=r"generations\.jsonl: the score of b is not a number; evaluate"):
        differences.read_generations(path)
    path.write_text('{"id": "a", "correct": 1}\n{"id": "a", "correct": 0}\n')
    with pytest.raises(UserError, match="2 lines of 1 problems"):
        differences.read_generations(path)


SEEDS = """
  ntp_again: {{repeats: ntp, data_seed: 7}}
  sbd_again: {{repeats: sbd, data_seed: 7}}
  sbd_third: {{repeats: sbd, data_seed: 8}}
decoders:"""


def test_pairs_are_repeated_for_every_seed_that_both_runs_have(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    path.write_text(path.read_text().replace("decoders:", SEEDS.format().lstrip("\n"), 1))
    experiment = load_experiment(path)
    assert experiment.seeds_of("sbd", "ntp") == [("sbd", "ntp"), ("sbd_again", "ntp_again")]
    assert experiment.seeds_of("sbd") == [("sbd",), ("sbd_again",), ("sbd_third",)]
    assert experiment.seeds_of("sbd_no_ntp_loss", "sbd") == [("sbd_no_ntp_loss", "sbd")]
    found = {((a.run, a.decoder), (b.run, b.decoder)) for a, b in differences.pairs(experiment)}
    assert (("sbd", "gamma_0.1"), ("ntp", "ntp")) in found
    assert (("sbd_again", "gamma_0.1"), ("ntp_again", "ntp")) in found
    assert not any("sbd_third" in (a[0], b[0]) for a, b in found)
    assert Arm(run="sbd_again", decoder="ntp") not in [a for a, b in differences.pairs(experiment) if a == b]
