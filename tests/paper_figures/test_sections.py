"""Figures 1, 4, 5, 12 and 13 and table 2, from made-up CSV files; each draws once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from synthetic import paper_file, records

from paper_figures import command, figure1, figure4, figure5, figures12_13, inputs, style, table2
from paper_figures import reported as of_paper
from sbd import columns
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.records import write_csv
from sbd.steps.collect import training_losses

REPORTED = Path(__file__).parents[2] / "experiments" / "reported"


def reported(name: str) -> pd.DataFrame:
    frame = pd.read_csv(REPORTED / name)
    counts = of_paper.problems(REPORTED)
    return frame.assign(n=[counts[name] for name in frame["benchmark"]]) if "benchmark" in frame else frame


def curves(axes: Axes) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in axes.lines if line.get_linestyle() not in ("None", "")]


def has_point(axes: Axes, x: Any, y: Any) -> bool:
    points = np.concatenate([np.asarray(line.get_xydata(), dtype=float) for line in axes.lines])
    return bool(np.isclose(points, (x, y)).all(axis=1).any())


def row(frame: pd.DataFrame, **equal: str) -> pd.Series:
    found = inputs.where(frame, **equal)
    assert len(found) == 1
    return found.iloc[0]


def says(figure: Figure, text: str) -> bool:
    return text in figure.get_supxlabel().replace("\n", " ")


def test_figure1_marks_the_fastest_point_that_holds_the_baseline(tmp_path: Path) -> None:
    experiment = load_experiment(paper_file(tmp_path))
    frame = records(experiment)
    # Paired intervals that reach zero up to gamma 0.2 alone, whatever the intervals of the scores do.
    good = ("gamma_0", "gamma_0.01", "gamma_0.1", "gamma_0.2")
    grid = [arm.decoder for arm in next(iter(experiment.pareto.curves.values()))]
    paired = [
        [
            model,
            "tiny_code",
            "sbd",
            name,
            "ntp",
            "ntp",
            500,
            -1.0,
            -2.0,
            0.0 if name in good else -0.2,
            0.1,
            1,
            1,
            1,
            1,
            1,
        ]
        for model in experiment.models
        for name in grid
    ]
    differences = pd.DataFrame(paired, columns=pd.Index(columns.DIFFERENCES)).set_index(list(columns.PAIR))
    with style.house_style():
        figure = figure1.draw(experiment, frame, differences, reported("figure1.csv"), "tiny_code")
    left, right = figure.axes
    expected = row(frame, model="qwen3-tiny", run="sbd", benchmark="tiny_code", decoder="gamma_0.2")
    speed = f"{expected['tokens_per_forward']:.1f}\N{MULTIPLICATION SIGN}"
    ring = left.texts[-1]
    assert isinstance(ring, Annotation)
    assert speed == ring.get_text()
    assert ring.xy == (expected["tokens_per_forward"], expected["score"])
    lost = differences.drop(("qwen3-tiny", "tiny_code", "sbd", "gamma_0.6", "ntp", "ntp"))
    with pytest.raises(UserError, match=r"no row of qwen3-tiny/tiny_code/sbd/gamma_0\.6/ntp/ntp"):
        figure1.draw(experiment, frame, lost, reported("figure1.csv"), "tiny_code")
    assert has_point(right, 3.96, 37.44)
    assert has_point(right, 1.0, 31.28)
    assert right.get_title() == "reported by the paper: LiveCodeBench v6"


def test_figure4_draws_running_means_of_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load_experiment(paper_file(tmp_path))
    figures = experiment.figures
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    losses = {}
    for model in experiment.models:
        for run in ("ntp", "sbd", "sbd_no_ntp_loss"):
            losses[model, run] = random.random(85).round(5)
            lines = [
                {"step": 10 * i, "ntp_loss": loss, "block_loss": None if run == "ntp" else 1.0, "grad_norm": 1}
                for i, loss in enumerate(losses[model, run])
            ]
            path = experiment.run_folder(model, run) / "metrics.jsonl"
            path.parent.mkdir(parents=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "metrics.csv"
    lines = [line for model, run in losses for line in training_losses(experiment, model, run)]
    write_csv(lines, out, columns.METRICS)
    metrics = inputs.read_csv(out, columns.METRICS, ["model", "run"], "", empty=["block_loss"])
    assert len(metrics) == 2 * 3 * 85
    assert figures.figure4
    with style.house_style():
        figure = figure4.draw(experiment, metrics, figures.figure4)
        line = curves(figure.axes[1])[2]
        loss = losses["qwen3-tiny", "sbd_no_ntp_loss"]
        # 85 logged steps: means over two neighbours, at the middle of their steps.
        assert line[:, 1] == pytest.approx([(loss[i] + loss[i + 1]) / 2 for i in range(84)])
        assert line[:, 0] == pytest.approx([10 * i + 5 for i in range(84)])
        assert says(figure, "running mean over 2 logged steps")
        assert figure.axes[0].get_yscale() == "log"
        some = metrics.loc[(metrics["run"] != "sbd") | (metrics["model"] != "llama-tiny")]
        with pytest.raises(UserError, match="no training losses of llama-tiny/sbd;"):
            figure4.draw(experiment, some, figures.figure4)
        assert says(figure4.draw(experiment, some, figures.figure4, partial=True), "PARTIAL: 1")
        with pytest.raises(UserError, match="no training losses of llama-tiny/ntp;"):
            figure4.draw(experiment, metrics.loc[metrics["run"] == "pretrain"], figures.figure4, partial=True)
    path = experiment.run_folder("llama-tiny", "ntp") / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    with pytest.raises(UserError, match=r"not a file of training losses .*'ntp_loss'.*; delete .*--config experiment="):
        training_losses(experiment, "llama-tiny", "ntp")
    (experiment.run_folder("llama-tiny", "sbd") / "metrics.jsonl").unlink()
    with pytest.raises(
        UserError,
        match=r"run `snakemake .* results/made_up/models/llama-tiny/sbd/checkpoint/.* experiment=.*made_up\.yaml`",
    ):
        training_losses(experiment, "llama-tiny", "sbd")


def test_figure5_has_a_panel_per_model_and_benchmark_and_the_reported_ones(tmp_path: Path) -> None:
    experiment = load_experiment(paper_file(tmp_path))
    figures = experiment.figures
    frame = records(experiment)
    assert figures.figure5
    with style.house_style():
        figure = figure5.draw(experiment, frame, reported("figure5.csv"), figures.figure5)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:3] == [
        "tiny GSM (n = 500), Llama 0.9M",
        "tiny GSM (n = 500), Qwen3 0.9M",
        "tiny code (n = 500), Llama 0.9M",
    ]
    assert titles[4:] == [
        "reported by the paper: HumanEval (n = 164), 3B",
        "reported by the paper: GSM8K (n = 1319), 3B",
    ]
    code = row(frame, model="llama-tiny", run="sbd_short", decoder="gamma_0.6", benchmark="tiny_code")
    assert has_point(figure.axes[2], code["forward_passes"] / 500, code["score"])
    twin = row(frame, model="llama-tiny", run="ntp_short", decoder="ntp", benchmark="tiny_code")
    assert has_point(figure.axes[2], twin["forward_passes"] / 500, twin["score"])
    # The stars have intervals too.
    bars = np.concatenate([bar.get_segments() for bar in figure.axes[2].collections])  # type: ignore[attr-defined]
    passes = twin["forward_passes"] / 500
    whole = [(passes, twin["score_low"]), (passes, twin["score_high"])]
    assert any(np.allclose(bar, whole) for bar in bars)
    assert says(figure, "curves: SBD short / SBD; blocks of 16;")
    assert has_point(figure.axes[5], 335, 58.5)
    assert has_point(figure.axes[5], 1024, 59.4)


def test_figures12_13_has_a_curve_per_rule(tmp_path: Path) -> None:
    experiment = load_experiment(paper_file(tmp_path))
    figures = experiment.figures
    frame = records(experiment)
    assert figures.figures12_13
    with style.house_style():
        figure = figures12_13.draw(experiment, frame, reported("figures12_13.csv"), figures.figures12_13)
    code = row(frame, model="qwen3-tiny", run="sbd", decoder="factor_2", benchmark="tiny_code")
    assert has_point(figure.axes[3], code["forward_passes"] / 500, code["score"])
    assert [len(line) for line in curves(figure.axes[4])] == [7, 11, 7]
    assert says(figure, "run SBD; blocks of 16;")
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[0] == r"EB by entropy ($\gamma$ 0.1 to 0.6)"
    assert legend[2] == "factor (f 0.2 to 2)"


def test_table2_has_differences_to_the_first_run_and_their_intervals(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    experiment = load_experiment(path)
    figures = experiment.figures
    frame = records(experiment)
    frame.to_csv(tmp_path / "records.csv", index=False)
    paired = [
        [model, "choices", run, "ntp", "ntp", "ntp", 500, -4.0, -6.5, -1.5, 0.001, 30, 10, None, None, None]
        for model in experiment.models
        for run in ("sbd", "sbd_no_ntp_loss")
    ]
    pd.DataFrame(paired, columns=pd.Index(columns.DIFFERENCES)).to_csv(tmp_path / "differences.csv", index=False)
    options = ["--experiment", str(path), "--records", str(tmp_path / "records.csv"), "--output", str(tmp_path)]
    options += ["--reported", str(REPORTED)]
    table2.main([*options, "--differences", str(tmp_path / "differences.csv")])
    text = (tmp_path / "table2.md").read_text()
    first = row(frame, model="llama-tiny", run="ntp", decoder="ntp", benchmark="choices")["score"]
    third = row(frame, model="llama-tiny", run="sbd_no_ntp_loss", decoder="ntp", benchmark="choices")["score"]
    assert f"({third - first:+.1f} [-6.5, -1.5]) |" in text
    assert "choices (n = 500)" in text
    assert "over the same problems" in text
    assert "reported by the paper" in text
    assert re.search(r"SBD without NTP loss +\| +43.2 \(-7.7\)", text)
    tex = (tmp_path / "table2.tex").read_text()
    assert f" & SBD without NTP loss & {third:.1f} ({third - first:+.1f}) \\\\" in tex
    assert figures.table2
    nothing = pd.DataFrame(columns=pd.Index(columns.DIFFERENCES)).set_index(list(columns.PAIR))
    with pytest.raises(UserError, match=r"no row of llama-tiny/choices/sbd/ntp/ntp/ntp; run .*made_up\.yaml"):
        table2.build(experiment, frame, figures.table2, nothing)
    _, layout, _ = table2.build(experiment, frame, figures.table2, nothing, partial=True)
    assert "[missing])" in layout.rows[1][2]
    assert "PARTIAL: 4" in layout.caption
    with pytest.raises(UserError, match="llama-tiny/ntp/ntp/choices"):
        table2.build(experiment, frame.loc[frame["benchmark"] != "choices"], figures.table2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "figure1: {benchmark: tiny_code}",
            "figure1: {benchmark: tiny_cod}",
            "figures.figure1.benchmark: unknown name",
        ),
        ("run: sbd_short, baseline", "run: sbd_shor, baseline", "figures.figure5: unknown name 'sbd_shor'; known are"),
        ("factor: [factor_0.2, factor_2]", "factor: [ntp, gamma_0]\n  oops: 1", "oops"),
        (
            "runs: [ntp, sbd, sbd_no_ntp_loss], b",
            "runs: [ntp, pretrain], b",
            "'pretrain' with decoder 'ntp' is not among",
        ),
    ],
)
def test_a_wrong_name_in_the_figures_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = paper_file(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError, match=message):
        load_experiment(path)


def test_a_figure_that_the_experiment_does_not_name_says_what_to_add(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tiny\.yaml: no figures\.figure5; add it"):
        command.required(None, "figure5", "tiny.yaml")


@pytest.mark.parametrize("name", ["paper", "paper-tiny"])
def test_measured_and_reported_curves_of_one_rule_share_a_colour(name: str) -> None:
    section = load_experiment(REPORTED.parent / f"{name}.yaml").figures.figures12_13
    assert section
    assert set(section.curves) == set(figures12_13.REPORTED_RULES.values())


def test_all_reported_numbers_say_where_they_are_from() -> None:
    for path in REPORTED.glob("*.csv"):
        assert pd.read_csv(path)["source"].str.len().gt(5).all(), path
