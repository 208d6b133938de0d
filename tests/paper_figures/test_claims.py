"""The verdicts on the paper's claims: their rule, what they are made of, and that nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from synthetic import paper_file, records
from test_decoding_speed import rows

from paper_figures import claims, inputs, reported
from paper_figures.verdicts import Cell, Quantity, Side, verdict
from sbd import columns, differences
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.statistics import Interval

REPORTED = Path(__file__).parents[2] / "experiments" / "reported"


def cell(estimate: float, half: float, threshold: float = 0.0, side: Side = "at least") -> Cell:
    return Cell("x", [Quantity("q", Interval(estimate, estimate - half, estimate + half), threshold, side)])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([], "not attempted at this scale"),
        ([cell(1.0, 0.5), cell(0.6, 0.6)], "reproduced"),
        ([cell(1.0, 0.5), cell(0.6, 0.7)], "trend only"),
        ([cell(1.0, 0.5), cell(-0.1, 0.7)], "not reproduced"),
        ([cell(1.0, 0.5), cell(1.0, 0.5), cell(-0.1, 0.7)], "trend only"),
        ([cell(-6.0, 0.5, -5.0, "at most")], "reproduced"),
        ([cell(-6.0, 1.5, -5.0, "at most")], "trend only"),
        ([cell(-4.0, 0.5, -5.0, "at most")], "not reproduced"),
        ([Cell("x", [*cell(1, 0.5).quantities, *cell(-1, 0.5).quantities])], "not reproduced"),
        # Equal twins, and ties, show nothing.
        ([cell(0.0, 0.0, 0.0, "more than")], "not reproduced"),
        ([cell(0.0, 0.0, 0.0, "less than")], "not reproduced"),
        ([cell(0.5, 0.5, 0.0, "more than")], "trend only"),
        # What cannot be compared, or is missing, never helps a verdict.
        ([Cell("x", [], "not comparable")], "not reproduced"),
        ([cell(1.0, 0.5), cell(1.0, 0.5), Cell("x", [], "missing")], "trend only"),
        ([cell(1.0, 0.5), Cell("x", [], "missing")], "not reproduced"),
    ],
)
def test_the_rule(cells: list[Cell], expected: str) -> None:
    assert verdict(cells) == expected


def test_a_number_is_shown_with_the_decimals_that_tell_its_side() -> None:
    def text(value: float, threshold: float, side: Side) -> str:
        return Quantity("q", Interval(value, value, value), threshold, side, n=500).text()

    assert text(1.1016, 1.10, "at most") == "q 1.102 [1.102, 1.102]"
    assert text(1.0984, 1.10, "at most") == "q 1.10 [1.10, 1.10]"
    assert text(-0.00004, 0.0, "less than") == "q -0.00004 [-0.00004, -0.00004]"
    # A calculation has no interval to show.
    assert Quantity("q", Interval(1.1016, 1.1016, 1.1016), 1.10, "at most").text() == "q 1.102"


def made_up(experiment: Experiment, half: float = 1.0) -> pd.DataFrame:
    """Differences between made-up records, with intervals of one width."""
    frame = records(experiment).set_index(inputs.KEY)
    rows = []
    for arm, base in differences.pairs(experiment):
        for model in experiment.models:
            for benchmark in experiment.benchmarks:
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


def made_up_contrasts(experiment: Experiment) -> pd.DataFrame:
    """Gaps that close by 5 points; bounds that beat factor by 2 at gamma 0.1 and are not comparable at 0.6."""
    rows = []
    for model in experiment.models:
        for benchmark in ("tiny_gsm", "tiny_code"):
            for long, _, _, _ in differences.gap_arms(experiment):
                key = [model, benchmark, differences.GAP_CLOSED, long.run, long.decoder]
                rows.append([*key, "x", 500, 5.0, 3.0, 7.0, None, None, None])
            for arm, _ in differences.factor_arms(experiment):
                key = [model, benchmark, differences.ABOVE_FACTOR, arm.run, arm.decoder]
                near = arm.decoder == "gamma_0.1"
                numbers = ["y", 500, 2.0, -1.0, 4.0] if near else ["", 500, None, None, None]
                rows.append([*key, *numbers, 9.0 if near else 3.0, 5.0, 20.0])
    return pd.DataFrame(rows, columns=pd.Index(columns.CONTRASTS))


def written(folder: Path) -> tuple[Experiment, list[str]]:
    """The CSV files of made-up numbers in a folder, and the options of the command."""
    path = paper_file(folder)
    experiment = load_experiment(path)
    records(experiment).to_csv(folder / "records.csv", index=False)
    made_up(experiment).to_csv(folder / "differences.csv", index=False)
    made_up_contrasts(experiment).to_csv(folder / "contrasts.csv", index=False)
    files = [word for name in ("records", "differences", "contrasts") for word in (f"--{name}", f"{folder}/{name}.csv")]
    return experiment, ["--experiment", str(path), *files, "--reported", str(REPORTED), "--output", str(folder)]


def verdicts(folder: Path) -> dict[str, str]:
    frame = pd.read_csv(folder / "claims.csv")
    return dict(zip(frame["claim"], frame["verdict"], strict=True))


NAMES = [rule.name for rule in claims.CLAIMS]


def test_verdicts_of_made_up_records(tmp_path: Path) -> None:
    _, options = written(tmp_path)
    claims.main(options)
    found = verdicts(tmp_path)
    assert list(found) == NAMES
    # By the formulas of the made-up records: 1.9 tokens per forward at gamma_low; SBD / NTP equal to NTP; 11 points
    # lost without the NTP loss; no run without the masked-token loss; 8 points behind after the short run and 5 of them
    # made good; one of two entropy bounds better than factor, the other out of its range.
    assert list(found.values())[:6] == [
        "not reproduced",
        "reproduced",
        "reproduced",
        "not attempted at this scale",
        "reproduced",
        "not reproduced",
    ]
    frame = pd.read_csv(tmp_path / "claims.csv")
    first = frame.loc[frame["claim"] == NAMES[2]]
    assert first["estimate"].to_numpy() == pytest.approx([-11.0] * 6)
    assert set(first["n"]) == {500}
    text = (tmp_path / "claims.md").read_text()
    assert "Llama 0.9M, tiny GSM (n = 500): difference -11.00 [-12.00, -10.00]" in text
    assert "tiny GSM, gamma = 0.1 (n = 500): gap closed by 5.00 [3.00, 7.00], shortest minus its twin" in text.replace(
        "\N{GREEK SMALL LETTER GAMMA}", "gamma"
    )
    assert "SBD, gamma = 0.6: not comparable at equal passes: 3.0 a problem, factor 5.0 to 20.0" in text.replace(
        "\N{GREEK SMALL LETTER GAMMA}", "gamma"
    )
    assert "The verdict is computed" in text
    assert "table 2, p. 7, printed: -11.1 to -0.5 points against SBD" in text
    assert " & 500 & " in (tmp_path / "claims.tex").read_text()


@pytest.mark.parametrize(
    ("file", "lost", "named"),
    [
        ("records", "sbd_no_ntp_loss", r"no record of llama-tiny/sbd_no_ntp_loss/ntp/tiny_gsm and \d more; run `py"),
        ("differences", "sbd_no_ntp_loss", r"differences.csv has no row of llama-tiny/tiny_gsm/sbd_no_ntp_loss/ntp/"),
        ("contrasts", "sbd", r"contrasts.csv has no row of llama-tiny/tiny_gsm/gap closed/sbd/"),
    ],
)
def test_what_is_asked_for_and_missing_stops_or_is_said(tmp_path: Path, file: str, lost: str, named: str) -> None:
    _, options = written(tmp_path)
    claims.main(options)
    whole = verdicts(tmp_path)
    frame = pd.read_csv(tmp_path / f"{file}.csv")
    frame.loc[(frame["run"] != lost) | (frame["model"] != "llama-tiny")].to_csv(tmp_path / f"{file}.csv", index=False)
    with pytest.raises(UserError, match=named) as caught:
        claims.main(options)
    assert "made_up.yaml" in str(caught.value)
    claims.main([*options, "--partial"])
    assert "PARTIAL" in (tmp_path / "claims.md").read_text()
    found = verdicts(tmp_path)
    ranks = ("reproduced", "trend only", "not reproduced")
    for name in NAMES:
        if whole[name] in ranks:
            assert ranks.index(found[name]) >= ranks.index(whole[name])


def test_what_was_not_run_is_not_attempted(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    text = path.read_text()
    start = text.index("  figure5:")
    text = text[:start] + text[text.index("  figures12_13:") :]
    path.write_text(text[: text.index("    sbd_ntp:")])
    experiment = load_experiment(path)
    nothing = made_up(experiment).iloc[:0].set_index(list(columns.PAIR))
    none = made_up_contrasts(experiment).iloc[:0].set_index(list(columns.CONTRAST))
    found = claims.build(claims.Evidence(experiment, nothing, none), REPORTED)
    assert [verdict(claim.cells) for claim in found[:6]] == ["not attempted at this scale"] * 6
    frame, _, _ = claims.layout(found, "made_up")
    assert frame["verdict"].tolist()[:6] == ["not attempted at this scale"] * 6


def test_without_the_masked_token_loss_blocks_must_fall_clearly_below(tmp_path: Path) -> None:
    path = paper_file(tmp_path)
    more = "    without_matp_loss: {run: sbd_block_16, decoder: gamma_0.1}\n    factor: [{"
    path.write_text(path.read_text().replace("    factor: [{", more, 1))
    experiment = load_experiment(path)
    arms = {((a.run, a.decoder), (b.run, b.decoder)) for a, b in differences.pairs(experiment)}
    assert (("sbd_block_16", "gamma_0.1"), ("sbd", "gamma_0.1")) in arms
    frame = made_up(experiment).set_index(list(columns.PAIR))
    cells = claims.masked_loss_needed(claims.Evidence(experiment, frame, frame))
    # 4 points lost by the made-up formula, of 5.
    assert [c.quantities[0].interval.estimate for c in cells] == pytest.approx([-4.0] * 4, abs=0.2)
    assert verdict(cells) == "not reproduced"


def test_a_block_of_16_is_also_judged_by_the_passes_that_were_measured(tmp_path: Path) -> None:
    experiment, options = written(tmp_path)
    times = rows("llama-tiny")  # 2 ms for a block of 16, 1 ms for one token
    times.to_csv(tmp_path / "speed.csv", index=False)
    claims.main([*options, "--speed", str(tmp_path / "speed.csv")])
    frame = pd.read_csv(tmp_path / "claims.csv")
    measured = frame.loc[frame["where"].str.contains("measured on cpu: x, float32, threads: 1, batch")]
    assert measured["estimate"].tolist() == [2.0, 2.0]
    assert measured[["low", "high"]].isna().to_numpy().all()
    nothing = pd.DataFrame()
    cheap = times.assign(ms_pass_k=1.01)
    cells = claims.block_16_is_cheap(claims.Evidence(experiment, nothing, nothing, cheap))
    assert [c.holds(Quantity.by_interval) for c in cells[-2:]] == [True, True]
    assert len(cells) == 8 + 2
    other = times.assign(block_size=8)
    assert len(claims.block_16_is_cheap(claims.Evidence(experiment, nothing, nothing, other))) == 8


def test_what_the_paper_reports_is_read_from_its_numbers(tmp_path: Path) -> None:
    for name in ("table1", "table2"):
        (tmp_path / f"{name}.csv").write_text((REPORTED / f"{name}.csv").read_text())
    assert reported.speed_up(tmp_path).startswith("table 1, p. 6, printed: gamma_low 2.20 to 3.92")
    text = (tmp_path / "table1.csv").read_text().replace("69.5,2.49", "69.5,9.49")
    (tmp_path / "table1.csv").write_text(text)
    assert "to 9.49" in reported.speed_up(tmp_path)
