from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from synthetic import TINY, records, tiny

from paper_figures import command, inputs, table1, tables
from paper_figures.labels import GAMMA, TIMES, sampling_label
from sbd.config import Arm, Experiment
from sbd.errors import UserError

REPORTED = Path(__file__).parents[2] / "experiments" / "reported"


def cells(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_cells_are_the_records(tmp_path: Path) -> None:
    frame = records(tiny())
    frame.to_csv(tmp_path / "records.csv", index=False)
    paths = table1.main(
        [
            *("--experiment", str(TINY), "--records", str(tmp_path / "records.csv")),
            *("--reported", str(REPORTED), "--output", str(tmp_path / "tables")),
        ]
    )
    assert [path.name for path in paths] == ["table1.csv", "table1.md", "table1.tex"]
    numbers = pd.read_csv(paths[0])
    assert list(numbers.columns) == inputs.COLUMNS
    assert len(numbers) == 2 * 4 * 2
    header, _, *rows = cells(paths[1].read_text())
    rows, below = rows[:8], rows[8:]
    assert below[0][:5] == [
        "reported by the paper",
        "training loss",
        "sampling",
        "average speed-up",
        "MATH500 (n = 500)",
    ]
    assert below[-1][:5] == ["Qwen-3 8B", "SBD", f"{GAMMA}_low", f"3.18{TIMES}", f"85.0 (3.41{TIMES})"]
    assert len(below) == 2 + 8
    assert header == [
        "model",
        "training loss",
        "sampling",
        "average speed-up",
        "tiny GSM (n = 500)",
        "tiny code (n = 500)",
    ]
    assert [row[1:3] for row in rows[:4]] == [
        ["NTP", "NTP"],
        ["SBD", "NTP"],
        ["SBD", f"{GAMMA}_high = 0.35"],
        ["SBD", f"{GAMMA}_low = 0.1"],
    ]
    # The last row by hand.
    low = frame[(frame["model"] == "qwen3-tiny") & (frame["decoder"] == "gamma_0.1")].set_index("benchmark")
    both = [low.loc[name] for name in ("tiny_gsm", "tiny_code")]
    speeds = [row["tokens_per_forward"] for row in both]
    scores = [f"{row['score']:.1f} [{row['score_low']:.1f}, {row['score_high']:.1f}]" for row in both]
    expected = [f"{score} ({speed:.2f}{TIMES})" for score, speed in zip(scores, speeds, strict=True)]
    assert rows[-1] == ["Qwen3 0.9M", "SBD", f"{GAMMA}_low = 0.1", f"{sum(speeds) / 2:.2f}{TIMES}", *expected]
    assert rows[0][3] == f"1{TIMES}"
    assert TIMES not in rows[0][4]
    tex = paths[2].read_text()
    assert r"$\gamma_{\mathrm{low}}$ = 0.1" in tex
    assert tex.count(r"\midrule") == 2 * 2
    assert tex.index("Qwen-3 8B & SBD") > tex.index(r"\end{tabular}")
    assert "**" not in paths[1].read_text()
    assert "textbf" not in tex


def test_not_asked_for_is_a_dash_and_has_no_average() -> None:
    raw = tiny().model_dump()
    raw["evaluations"][1]["benchmarks"] = ["tiny_gsm"]
    experiment = Experiment.model_validate(raw)
    _, text, _ = table1.build(experiment, records(experiment))
    assert list(text.rows[3][3:]) == [table1.ABSENT, text.rows[3][4], table1.ABSENT]
    assert text.rows[3][4][0].isdigit()


def test_a_partial_table_says_so() -> None:
    frame = records(tiny())
    frame = frame.loc[~((frame["decoder"] == "gamma_0.1") & (frame["benchmark"] == "tiny_code"))]
    with pytest.raises(UserError, match=r"llama-tiny/sbd/gamma_0\.1/tiny_code"):
        table1.build(tiny(), frame)
    _, text, paper = table1.build(tiny(), frame, partial=True)
    assert text.rows[3][3] == text.rows[3][5] == "missing"
    assert "PARTIAL: 2 evaluations are missing (llama-tiny/sbd/gamma_0.1/tiny_code" in text.caption
    assert "PARTIAL" in paper.caption


def test_a_mistake_is_one_line_and_status_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paper_figures.table1", "--experiment", str(TINY), "--output", str(tmp_path)]
    command += ["--records", "nowhere.csv", "--reported", str(REPORTED)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TINY.parents[2])
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: no such file: nowhere.csv; run `python -m sbd collect --experiment {TINY}`"
    ]


def test_a_full_disk_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> list[Path]:
        raise OSError(28, "No space left on device", "table1.csv")

    with pytest.raises(SystemExit) as end:
        command.run(full)
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: no space left for table1.csv; make room and run it again\n"


def test_tex_escapes_what_it_must() -> None:
    layout = tables.Layout(["a_b", "50% & more"], [["x#1", "gamma_low = 0.1"]], "Caption.", groups=[1])
    text = tables.to_tex(layout)
    assert r"a\_b & 50\% \& more \\" in text
    assert r"x\#1 & $\gamma_{\mathrm{low}}$ = 0.1 \\" in text
    assert text.splitlines()[1] == r"\begin{tabular}{lr}"
    layout = tables.Layout(["a", "b"], [["x > 0", "<= 1"]], "Caption.", paragraphs={0: 0.5})
    text = tables.to_tex(layout)
    assert text.splitlines()[1] == r"\begin{tabular}{p{0.5\linewidth}r}"
    assert r"x $>$ 0 & $\leq$ 1 \\" in text


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (None, "gamma = 0.1"),
        ("gamma_low", "gamma_low = 0.1"),
        ("gamma_low, NTP first slot", "gamma_low = 0.1, NTP first slot"),
        ("free first slot", "free first slot (gamma = 0.1)"),
        ("gamma 0.1", "gamma 0.1"),
    ],
)
def test_the_number_of_a_setting_stands_in_its_label(label: str | None, expected: str) -> None:
    assert sampling_label(tiny(), Arm(run="sbd", decoder="gamma_0.1", label=label)) == expected
