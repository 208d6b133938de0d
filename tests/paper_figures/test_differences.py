"""Paired differences from made-up generations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from synthetic import paper_file

from paper_figures import inputs
from sbd import columns, differences, statistics
from sbd.config import Experiment
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
    counts = '"tokens": 4, "forward_passes": 2'
    path.write_text(f'{{"id": "a", "correct": 1, {counts}}}\n{{"id": "b", "correct": NaN, {counts}}}\n')
    with pytest.raises(UserError, match=r"generations\.jsonl: the score of b is not a number; delete it and evaluate"):
        differences.read_generations(path)
    path.write_text(f'{{"id": "a", "correct": 1, {counts}}}\n{{"id": "a", "correct": 0, {counts}}}\n')
    with pytest.raises(UserError, match="2 lines of 1 problems"):
        differences.read_generations(path)


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "a", "correct": "x", "tokens": 4, "forward_passes": 2}',
        '{"id": "a", "correct": 1, "tokens": 4}',
        '{"id": "a", "correct": 1, "tokens": null, "forward_passes": 2}',
        "[1]",
        "{",
    ],
)
def test_a_damaged_line_is_refused_in_one_line_with_what_to_run(tmp_path: Path, line: str) -> None:
    path = tmp_path / "generations.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match=r"generations\.jsonl: not a file of generations .*; delete it and run `x`"):
        differences.read_generations(path, "run `x`")


def test_of_bytes_that_are_no_text_the_place_is_named_and_not_the_file_shown(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"
    path.write_bytes(b"\xff" * 1000)
    with pytest.raises(UserError, match=r"not a file of generations .* in position 0: invalid start byte") as refused:
        differences.read_generations(path)
    assert len(str(refused.value)) < 300 + len(str(path))


def test_a_text_may_hold_what_unicode_calls_a_line_break(tmp_path: Path) -> None:
    line = {"id": "p", "text": "a\u2028b\x85c", "correct": 1, "tokens": 3, "forward_passes": 2}
    path = tmp_path / "generations.jsonl"
    path.write_text(json.dumps(line, ensure_ascii=False) + "\n", encoding="utf-8")
    assert differences.read_generations(path) == {"p": line}


def plain(experiment: Experiment, **scores: tuple[list[int], list[int]]) -> None:
    """Generations of tiny_gsm: RUN__DECODER=(correct, forward passes) of each problem."""
    for name, (correct, passes) in scores.items():
        run, decoder = name.replace("_DOT_", ".").split("__")
        for model in experiment.models:
            folder = experiment.record_folder(model, run, decoder, "tiny_gsm")
            folder.mkdir(parents=True, exist_ok=True)
            lines = [
                json.dumps({"id": f"p{i:03}", "correct": c, "tokens": 40, "forward_passes": f})
                for i, (c, f) in enumerate(zip(correct, passes, strict=True))
            ]
            (folder / "generations.jsonl").write_text("\n".join(lines) + "\n")


def test_contrasts_are_taken_problem_by_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the bootstrap of the sum of arms written out, for gaps that close and for neighbours in passes."""
    experiment = load_experiment(paper_file(tmp_path))
    monkeypatch.chdir(tmp_path)
    gsm = experiment.model_copy(update={"benchmarks": {"tiny_gsm": experiment.benchmarks["tiny_gsm"]}})
    random = np.random.default_rng(0)
    draw = {name: random.integers(0, 2, 60).tolist() for name in ("long", "twin", "short", "other", "f1", "f2", "far")}
    flat = [10] * 60
    plain(
        experiment,
        sbd__gamma_0_DOT_1=(draw["long"], [10, 20] * 30),
        ntp__ntp=(draw["twin"], flat),
        sbd_short__gamma_0_DOT_1=(draw["short"], flat),
        ntp_short__ntp=(draw["other"], flat),
        sbd__factor_0_DOT_2=(draw["f1"], [18] * 60),
        sbd__factor_2=(draw["f2"], [14] * 60),
        sbd__gamma_0_DOT_6=(draw["far"], [13] * 60),
    )
    rows = {(r["model"], r["contrast"], r["decoder"]): r for r in differences.contrasts(gsm)}
    assert len(rows) == 2 * 3
    gap = rows["qwen3-tiny", "gap closed", "gamma_0.1"]
    arrays = {name: np.array(values) for name, values in draw.items()}
    closed = (arrays["long"] - arrays["twin"]) - (arrays["short"] - arrays["other"])
    expected = statistics.paired_difference([0.0] * 60, closed.tolist()).difference.times(100)
    assert (gap["difference"], gap["low"], gap["high"]) == pytest.approx(
        (expected.estimate, expected.low, expected.high)
    )
    assert (gap["run"], gap["n"]) == ("sbd", 60)
    # 15 passes a problem, between 14 (weight 3/4) and 18 (1/4).
    near = rows["llama-tiny", "above factor", "gamma_0.1"]
    above = arrays["long"] - (0.75 * arrays["f2"] + 0.25 * arrays["f1"])
    expected = statistics.paired_difference([0.0] * 60, above.tolist()).difference.times(100)
    assert (near["difference"], near["low"], near["high"]) == pytest.approx(
        (expected.estimate, expected.low, expected.high)
    )
    assert (near["passes"], near["passes_low"], near["passes_high"]) == pytest.approx((15, 14, 18))
    assert near["against"] == "0.750 sbd/factor_2 + 0.250 sbd/factor_0.2"
    far = rows["llama-tiny", "above factor", "gamma_0.6"]
    assert (far["difference"], far["against"], far["passes"]) == (None, None, 13)
    write_csv(list(rows.values()), tmp_path / "contrasts.csv", columns.CONTRASTS)
    read = inputs.read_contrasts(tmp_path / "contrasts.csv")
    assert read.loc[("llama-tiny", "tiny_gsm", "above factor", "sbd", "gamma_0.1")]["passes"] == 15


def test_an_arm_with_the_passes_of_a_factor_arm_is_compared_with_that_one() -> None:
    def problems(correct: int, passes: int) -> differences.Problems:
        return {str(i): {"correct": correct, "forward_passes": passes} for i in range(9)}

    factors = [problems(1, 7), problems(0, 9), problems(1, 12)]
    for passes, expected in ((7, 0.0), (9, 100.0), (12, 0.0), (8, 50.0)):
        found = differences._above(problems(1, passes), factors, ["a", "b", "c"], 0)
        assert found["difference"] == pytest.approx(expected)


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
