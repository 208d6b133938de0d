"""Wall-clock of decoders: figure and table hold what was measured, and what was not has a dash."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from paper_figures import decoding_speed, style
from paper_figures.labels import ABSENT
from sbd.errors import UserError
from sbd.experiment_files import load_experiment

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "paper-tiny.yaml"


def rows(model: str) -> pd.DataFrame:
    shared = {"model": model, "run": "sbd", "device": "cpu: x", "dtype": "float32", "torch": "2", "clock": "wall"}
    shared |= {"threads": 1, "problems": 8, "ms_pass_1": 1.0, "ms_per_pass": 1.5}
    measured = [
        ("autoregressive", 1, 100.0, 1.0, 1.0, None),
        ("gamma_0.1", 1, 150.0, 1.8, 1.5, 1.55),
        ("gamma_0.1_k8_first", 1, 170.0, 2.0, 1.7, 2.4),
        ("self_speculative", 1, 300.0, 4.4, 3.0, None),
        ("hf_generate", 1, 60.0, 1.0, 0.6, None),
        ("autoregressive", 8, 500.0, 1.0, 1.0, None),
        ("gamma_0.1", 8, 400.0, 1.8, 0.8, 0.75),
    ]
    return pd.DataFrame(
        [
            {
                **shared,
                "decoder": name,
                "batch": batch,
                "tokens_per_second": per_second,
                "tokens_per_forward": per_forward,
                "gain_measured": gain,
                "gain_decoding": None if name.startswith("hf") else 1.1 * gain,
                "gain_predicted": predicted,
                "gain_counted": predicted and predicted - 0.05,
                "queries_per_pass": None if name.startswith("hf") else 17.54,
                "share_outside_model": None if name.startswith("hf") else 0.207,
                "ms_pass_k": 2.0,
                "ms_pass_2k": 3.0,
                "block_size": 16,
            }
            for name, batch, per_second, per_forward, gain, predicted in measured
        ]
    )


def test_points_stand_where_they_were_measured() -> None:
    with style.house_style():
        figure = decoding_speed.draw(load_experiment(EXPERIMENT), pd.concat([rows("llama-tiny"), rows("qwen3-tiny")]))
        gains, predicted = figure.axes
        labels = [label.get_text() for label in gains.get_yticklabels()]
        assert labels[0] == "autoregressive"
        assert "block 8, first slot by NTP" in labels[2]
        marks = [line for line in predicted.lines if line.get_linestyle() == "None"]
        found = sorted((x, y) for line in marks for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[call-overload]
        expected = sorted([(1.55, 1.65), (2.4, 1.87), (0.75, 0.88)] * 2)
        assert [value for point in found for value in point] == pytest.approx([v for point in expected for v in point])
        first = next(line for line in gains.lines if line.get_label() == "Llama 0.9M, batch 1")
        assert list(first.get_xdata()) == [1.0, 1.5, 1.7, 3.0, 0.6]  # type: ignore[arg-type]
        assert "n = 8 problems" in figure.get_supxlabel().replace("\n", " ")
        assert "run SBD; cpu: x" in figure.get_supxlabel().replace("\n", " ")


def test_table_and_command(tmp_path: Path) -> None:
    for model in ("llama-tiny", "qwen3-tiny"):
        rows(model).to_csv(tmp_path / f"{model}.csv", index=False)
    files = [str(tmp_path / f"{model}.csv") for model in ("llama-tiny", "qwen3-tiny")]
    options = ["--experiment", str(EXPERIMENT), "--speed", *files, "--output", str(tmp_path / "out/tables")]
    paths = decoding_speed.main(options)
    assert sorted(path.name for path in paths) == sorted(
        f"decoding_speed.{suffix}" for suffix in ("pdf", "png", "csv", "md", "tex")
    )
    lines = (tmp_path / "out/tables/decoding_speed.md").read_text().splitlines()
    cells = [cell.strip() for cell in lines[3].split("|")[1:-1]]
    assert cells[:3] == ["Llama 0.9M", "1", "γ = 0.1, block 16"]
    assert cells[3:] == ["150", "1.80", "17.5", "1.50", "21", "1.50", "1.65", "1.55", "1.50"]
    assert lines[6].count(ABSENT) == 5
    assert lines[-1].startswith("Scale paper-tiny, run SBD; cpu: x, threads: 1, float32, torch 2; medians by the wall")
    assert len(pd.read_csv(tmp_path / "out/tables/decoding_speed.csv")) == 14
    rows("llama-tiny").assign(decoder="nope").to_csv(files[0], index=False)
    with pytest.raises(UserError, match="'nope' of the timings is not in the experiment"):
        decoding_speed.main(options)
    rows("llama-tiny").drop(columns="clock").to_csv(files[0], index=False)
    with pytest.raises(UserError, match="column clock is missing"):
        decoding_speed.main(options)
