from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from synthetic import paper_file, records

from paper_figures import claims, inputs
from paper_figures.claims import Cell, Quantity, verdict
from sbd import columns, differences
from sbd.experiment_files import load_experiment
from sbd.statistics import Interval


def cell(estimate: float, half: float, threshold: float = 0.0, at_least: bool = True) -> Cell:
    return Cell("x", [Quantity("q", Interval(estimate, estimate - half, estimate + half), threshold, at_least)])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([], "not attempted at this scale"),
        ([cell(1.0, 0.5), cell(0.6, 0.6)], "reproduced"),
        ([cell(1.0, 0.5), cell(0.6, 0.7)], "trend only"),
        ([cell(1.0, 0.5), cell(-0.1, 0.7)], "not reproduced"),
        ([cell(1.0, 0.5), cell(1.0, 0.5), cell(-0.1, 0.7)], "trend only"),
        ([cell(-6.0, 0.5, -5.0, at_least=False)], "reproduced"),
        ([cell(-6.0, 1.5, -5.0, at_least=False)], "trend only"),
        ([cell(-4.0, 0.5, -5.0, at_least=False)], "not reproduced"),
        ([Cell("x", [*cell(1, 0.5).quantities, *cell(-1, 0.5).quantities])], "not reproduced"),
    ],
)
def test_the_rule(cells: list[Cell], expected: str) -> None:
    assert verdict(cells) == expected


def made_up(experiment, half: float = 1.0) -> pd.DataFrame:  # type: ignore[no-untyped-def]
    """Differences between made-up records, with intervals of one width."""
    frame = records(experiment).set_index(inputs.KEY)
    rows = []
    for arm, base in differences.pairs(experiment):
        for model in experiment.models:
            for benchmark in ("tiny_gsm", "tiny_code"):
                keys = (model, arm.run, arm.decoder, benchmark), (model, base.run, base.decoder, benchmark)
                if all(key in frame.index for key in keys):
                    ours, theirs = (frame.loc[key] for key in keys)
                    d, speed = ours["score"] - theirs["score"], ours["tokens_per_forward"]
                    rows.append(
                        [
                            *(model, benchmark, arm.run, arm.decoder, base.run, base.decoder),
                            *(500, d, d - half, d + half, 0.1, 1, 1, speed, speed - 0.1, speed + 0.1),
                        ]
                    )
    return pd.DataFrame(rows, columns=pd.Index(columns.DIFFERENCES))


def test_verdicts_of_made_up_records(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    experiment = load_experiment(path)
    records(experiment).to_csv(tmp_path / "records.csv", index=False)
    made_up(experiment).to_csv(tmp_path / "differences.csv", index=False)
    claims.main(
        [
            *("--experiment", str(path), "--records", str(tmp_path / "records.csv"), "--output", str(tmp_path)),
            *("--differences", str(tmp_path / "differences.csv")),
        ]
    )
    frame = pd.read_csv(tmp_path / "claims.csv")
    found = dict(zip(frame["claim"], frame["verdict"], strict=True))
    names = [name for name, *_ in claims.CLAIMS]
    assert list(found) == names
    # By the formulas of the made-up records: 1.9 tokens per forward at gamma_low; SBD / NTP equal to NTP; 11 points
    # lost without the NTP loss; 8 points behind after the short run whose twin is 3 behind; factor loses more.
    assert [found[name] for name in names] == [
        "not reproduced",
        "reproduced",
        "reproduced",
        "reproduced",
        "trend only",
        "trend only",
    ]
    first = frame.loc[frame["claim"] == names[2]]
    assert first["estimate"].to_numpy() == pytest.approx([-11.0] * 4)
    text = (tmp_path / "claims.md").read_text()
    assert "difference -11.00 [-12.00, -10.00]" in text
    assert "The verdict is computed" in text


def test_what_was_not_run_is_not_attempted(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    text = path.read_text()
    path.write_text(text[: text.index("    sbd_ntp:")])
    experiment = load_experiment(path)
    nothing = made_up(experiment).iloc[:0].set_index(list(columns.PAIR))
    found = claims.build(claims.Evidence(experiment, records(experiment), nothing))
    assert [verdict(claim.cells) for claim in found[:5]] == ["not attempted at this scale"] * 5
    frame, _, _ = claims.layout(found, "made_up")
    assert frame["verdict"].tolist()[:5] == ["not attempted at this scale"] * 5
