"""The figures that the paper has not, from made-up CSV files, and what every figure promises of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import paper_file, records, tiny

from paper_figures import ablations, inputs, matp_loss, seeds, style, wall_clock
from sbd import columns, roofline
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.selection import Ablations, Arm


def losses(experiment) -> pd.DataFrame:  # type: ignore[no-untyped-def]
    rows = [
        [model, "sbd", 4, position, rate, 0.1 * position + rate + (model == "qwen3-tiny"), int(100 * rate)]
        for model in experiment.models
        for position in range(1, 5)
        for rate in (0.25, 0.75)
    ]
    return pd.DataFrame(rows, columns=pd.Index(columns.MASKED_LOSS))


def test_matp_losses_are_means_over_tokens_and_files_repeat(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    experiment = load_experiment(path)
    losses(experiment).to_csv(tmp_path / "losses.csv", index=False)
    options = ["--experiment", str(path), "--losses", str(tmp_path / "losses.csv"), "--output"]
    first = matp_loss.main([*options, str(tmp_path / "a")])
    second = matp_loss.main([*options, str(tmp_path / "b")])
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    with style.house_style():
        figure = matp_loss.draw(experiment, losses(experiment))
    # Of each model: 4 positions with 25 and 75 tokens.
    assert "in blocks of 4, n = 400 masked tokens a curve" in figure.get_supxlabel().replace("\n", " ")
    by_position, by_rate = (axes.lines[1].get_xydata() for axes in figure.axes)
    # Position 3 of Qwen: 25 tokens at 1.55 and 75 at 2.05.
    assert np.asarray(by_position)[2] == pytest.approx([3, (25 * 1.55 + 75 * 2.05) / 100])
    assert np.asarray(by_rate)[1] == pytest.approx([0.75, 0.75 + 1 + 0.25])
    some = losses(experiment).loc[lambda frame: frame["model"] == "llama-tiny"]
    with pytest.raises(UserError, match="no masked-token losses of qwen3-tiny/sbd; run `python -m sbd collect --exp"):
        matp_loss.draw(experiment, some)
    with style.house_style():
        figure = matp_loss.draw(experiment, some, partial=True)
        assert "PARTIAL: 1 evaluations are missing (qwen3-tiny/sbd)" in figure.get_supxlabel().replace("\n", " ")
        # A run that the experiment does not ask for is not drawn.
        other = pd.concat([losses(experiment), losses(experiment).assign(run="sbd_short")])
        assert len(matp_loss.draw(experiment, other).axes[0].lines) == 2
    with pytest.raises(UserError, match="no masked-token losses of llama-tiny/sbd"):
        matp_loss.draw(experiment, some.iloc[:0], partial=True)


def test_no_two_curves_look_alike() -> None:
    with style.house_style():
        found = style.looks(map(str, range(49)))
        assert len({tuple(map(str, (look["color"], look["marker"]))) for look in found.values()}) == 49
        assert len({str((look["color"], look["linestyle"])) for look in found.values()}) > 30
        assert list(style.looks("abcdefgh"))[:7] == list("abcdefg")
        with pytest.raises(UserError, match="50 curves cannot be told apart"):
            style.looks(map(str, range(50)))


def test_models_have_colours_and_their_curves_shapes() -> None:
    def shape(look: dict[str, Any]) -> tuple[str, str]:
        return look["marker"], str(look["linestyle"])

    with style.house_style():
        found = style.crossed(["a", "b"], ["long", "short", "drafted"])
        assert list(found) == ["a/long", "a/short", "a/drafted", "b/long", "b/short", "b/drafted"]
        assert {found[name]["color"] for name in ("a/long", "a/short", "a/drafted")} == {found["a/long"]["color"]}
        assert found["a/long"]["color"] != found["b/long"]["color"]
        assert shape(found["a/short"]) == shape(found["b/short"])
        assert len({shape(found[name]) for name in ("a/long", "a/short", "a/drafted")}) == 3
        with pytest.raises(UserError, match="1 x 8 curves cannot be told apart"):
            style.crossed("a", map(str, range(8)))


def test_wall_clock_is_tokens_per_second_over_the_baseline() -> None:
    experiment = tiny()
    frame = records(experiment)
    slower = frame["decoder"].ne("ntp").to_numpy()
    frame.loc[slower, "tokens_per_second"] *= 0.8
    machine = roofline.Hardware("this machine (cpu)", 1e10, 1e10, 4e9, number_bytes=4)
    with style.house_style():
        figure = wall_clock.draw(experiment, frame, machine)
    curve = np.asarray(figure.axes[0].lines[0].get_xydata())
    assert curve[:, 1] == pytest.approx(0.8 * curve[:, 0])
    assert len(curve) == 8
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.7]
    assert len(thin) == 2
    config = experiment.models["llama-tiny"].shape
    model = roofline.Roofline(roofline.Shape.of("x", config, 512), machine, roofline.Precision(4, 4, 4))
    x, y = np.asarray(thin[0].get_xydata())[3]
    assert y == pytest.approx(model.speed_up(125, 16, 64, x))
    assert "while other evaluations ran beside" in figure.get_supxlabel().replace("\n", " ")
    with pytest.raises(UserError, match="llama-tiny/sbd/gamma_0/tiny_gsm"):
        wall_clock.draw(experiment, frame.loc[frame["decoder"] != "gamma_0"])


def test_ablations_stand_beside_the_papers_setting(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    experiment = load_experiment(path)
    figures = experiment.figures
    frame = records(experiment)
    assert figures.ablations
    _, text = ablations.build(experiment, frame, figures.ablations)
    assert [row[:3] for row in text.rows[:4]] == [
        ["block size", "drawn from 2 to 16", "Llama 0.9M"],
        ["block size", "drawn from 2 to 16", "Qwen3 0.9M"],
        ["block size", "always 16", "Llama 0.9M"],
        ["block size", "always 16", "Qwen3 0.9M"],
    ]
    arm = {"model": "qwen3-tiny", "run": "sbd_block_16", "decoder": "gamma_0.1", "benchmark": "tiny_code"}
    row = inputs.where(frame, **arm).iloc[0]
    assert text.rows[3][4].startswith(f"{row['score']:.1f} [{row['score_low']:.1f}, {row['score_high']:.1f}] (")
    with style.house_style():
        figure = ablations.draw(experiment, frame, figures.ablations)
    points = [tuple(np.asarray(line.get_xydata())[0]) for line in figure.axes[2].lines if len(line.get_xydata()) == 1]  # type: ignore[arg-type]
    assert any(x == pytest.approx(row["score"]) for x, _ in points)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["drawn from 2 to 16", "always 16", "SBD, NTP", "SBD without NTP loss, NTP"]
    with pytest.raises(UserError, match=r"sbd_block_16/gamma_0\.1/tiny_gsm"):
        ablations.build(experiment, frame.loc[frame["run"] != "sbd_block_16"], figures.ablations)
    # A paired difference that is asked for and not there is no empty place.
    nothing = pd.DataFrame(columns=pd.Index(columns.DIFFERENCES)).set_index(list(columns.PAIR))
    with pytest.raises(UserError, match=r"no row of llama-tiny/tiny_gsm/sbd_block_16/gamma_0\.1/sbd/gamma_0\.1; run"):
        ablations.build(experiment, frame, figures.ablations, nothing)
    _, text = ablations.build(experiment, frame, figures.ablations, nothing, partial=True)
    assert "] missing (" in text.rows[2][3]
    assert "PARTIAL" in text.caption
    assert "paper's setting" not in text.caption


def test_an_arm_without_another_to_compare_with_is_not_shown(tmp_path: Path) -> None:
    raw = load_experiment(paper_file(tmp_path)).model_dump()
    raw["evaluations"][1]["runs"].remove("sbd_block_16")
    raw["evaluations"].append(
        {"runs": ["sbd_block_16"], "decoders": ["gamma_0.1"], "benchmarks": ["tiny_gsm"], "models": ["llama-tiny"]}
    )
    experiment = Experiment.model_validate(raw)
    assert experiment.figures.ablations
    frame = records(experiment)
    _, text = ablations.build(experiment, frame, experiment.figures.ablations)
    shown = [row for row in text.rows if row[0] == "block size"]
    assert [row[1:3] for row in shown] == [["drawn from 2 to 16", "Llama 0.9M"], ["always 16", "Llama 0.9M"]]
    assert [row[4] for row in shown] == ["\N{EN DASH}"] * 2
    with style.house_style():
        figure = ablations.draw(experiment, frame, experiment.figures.ablations)
        alone = Ablations(benchmarks=None, groups={"size": experiment.figures.ablations.groups["block size"]})
        legend = ablations.draw(experiment, frame, alone).legends[0]
        assert [text.get_text() for text in legend.get_texts()] == ["Llama 0.9M"]
    row = inputs.where(frame, model="qwen3-tiny", run="sbd", decoder="gamma_0.1", benchmark="tiny_gsm").iloc[0]
    drawn = [np.asarray(line.get_xdata())[0] for line in figure.axes[0].lines if len(line.get_xdata()) == 1]  # type: ignore[arg-type]
    assert row["score"] not in drawn


def test_equation_16_is_not_drawn_for_other_decoders(tmp_path: Path) -> None:
    raw = tiny().model_dump()
    raw["decoders"]["self"] = {"kind": "self_speculative", "block_size": 16}
    raw["evaluations"][1]["decoders"].append("self")
    raw["pareto"]["curves"]["self"] = [{"run": "sbd", "decoder": "self"}]
    experiment = Experiment.model_validate(raw)
    machine = roofline.Hardware("this machine (cpu)", 1e10, 1e10, 4e9, number_bytes=4)
    with style.house_style():
        figure = wall_clock.draw(experiment, records(experiment), machine)
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.7]
    assert len(thin) == 2  # one for each model


def test_seeds_stand_side_by_side_with_their_mean(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    again = "  ntp_2: {repeats: ntp, data_seed: 7, models: [llama-tiny]}\n"
    again += "  sbd_2: {repeats: sbd, data_seed: 7, models: [llama-tiny]}\n"
    text = path.read_text().replace("decoders:\n  confidence", f"{again}decoders:\n  confidence", 1)
    text = text.replace("evaluations:", "evaluations:\n  - {runs: [ntp_2, sbd_2], decoders: [ntp]}", 1)
    text += "  seeds: {comparisons: [{arm: {run: sbd, decoder: ntp}, baseline: {run: ntp, decoder: ntp}}]}\n"
    path.write_text(text)
    experiment = load_experiment(path)
    assert experiment.figures.seeds
    values = {("llama-tiny", "sbd"): 1.0, ("llama-tiny", "sbd_2"): -2.0, ("qwen3-tiny", "sbd"): 3.0}
    rows = [
        [model, benchmark, run, "ntp", run.replace("sbd", "ntp"), "ntp", 500, d, d - 1, d + 1, 0.5, 1, 2, 1, 1, 1]
        for (model, run), d in values.items()
        for benchmark in experiment.benchmarks
    ]
    differences = pd.DataFrame(rows, columns=pd.Index(columns.DIFFERENCES)).set_index(list(columns.PAIR))
    numbers, table = seeds.build(experiment, records(experiment), differences, experiment.figures.seeds)
    assert table.rows[0][0] == "SBD decoded by NTP against NTP decoded by NTP"
    assert list(table.header[3:]) == ["seed 1", "seed 2", "mean"]
    assert table.rows[0][3:] == ["+1.0 [+0.0, +2.0]", "-2.0 [-3.0, -1.0]", "-0.5 \N{PLUS-MINUS SIGN} 1.5"]
    assert table.rows[3][3:] == ["+3.0 [+2.0, +4.0]", "\N{EN DASH}", "\N{EN DASH}"]
    assert len(table.rows) == 2 * 3
    assert len(numbers) == 3 * 3
    with pytest.raises(UserError, match="no row of llama-tiny/tiny_gsm/sbd_2/ntp/ntp_2/ntp; run"):
        seeds.build(experiment, records(experiment), differences.drop(differences.index[3]), experiment.figures.seeds)


def test_a_panel_shows_the_whole_of_a_comparison_or_nothing(tmp_path: Path) -> None:
    experiment = load_experiment(paper_file(tmp_path))
    raw = experiment.model_dump()
    raw["evaluations"][1]["runs"].remove("sbd_block_16")
    raw["evaluations"].append(
        {"runs": ["sbd_block_16"], "decoders": ["gamma_0.1"], "benchmarks": ["tiny_code"], "models": ["qwen3-tiny"]}
    )
    raw["figures"]["ablations"] = None
    experiment = Experiment.model_validate(raw)
    arms = [Arm(run=run, decoder="gamma_0.1") for run in ("sbd", "sbd_block_16")]
    some, _ = inputs.rows_of(records(experiment), experiment, arms)
    whole, _ = inputs.rows_of(records(experiment), experiment, arms, complete=True)
    assert len(some) == 5
    assert whole[["model", "run", "benchmark"]].to_numpy().tolist() == [
        ["qwen3-tiny", "sbd", "tiny_code"],
        ["qwen3-tiny", "sbd_block_16", "tiny_code"],
    ]
