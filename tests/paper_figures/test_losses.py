"""The table of held-out losses: numbers where they are, dashes where a run has none."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from paper_figures import losses
from paper_figures.labels import ABSENT
from sbd import columns
from sbd.errors import UserError
from sbd.experiment_files import load_experiment

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "tiny.yaml"
ROWS = pd.DataFrame(
    [
        ("llama-tiny", "ntp", 853120, 7, 0.51, 1200, None, 0),
        ("llama-tiny", "sbd", 853120, 7, 0.5249, 1200, 1.0306, 612),
        ("qwen3-tiny", "sbd", 853376, 7, 0.6, 1200, 1.1, 612),
    ],
    columns=pd.Index(columns.LOSSES),
)


def test_numbers_dashes_and_groups() -> None:
    layout = losses.build(load_experiment(EXPERIMENT), ROWS)
    assert [row[4:] for row in layout.rows] == [
        ["0.510 (n = 1200)", ABSENT],
        ["0.525 (n = 1200)", "1.031 (n = 612)"],
        ["0.600 (n = 1200)", "1.100 (n = 612)"],
    ]
    assert layout.rows[1][:4] == ["Llama 0.9M", "SBD", "0.85M", "7"]
    assert list(layout.groups) == [2, 1]


def test_the_command_writes_three_files_and_refuses_another_table(tmp_path: Path) -> None:
    source = tmp_path / "losses.csv"
    ROWS.to_csv(source, index=False)
    options = ["--experiment", str(EXPERIMENT), "--losses", str(source), "--output", str(tmp_path / "tables")]
    paths = losses.main(options)
    assert [path.name for path in paths] == ["losses.csv", "losses.md", "losses.tex"]
    assert pd.read_csv(paths[0]).equals(pd.read_csv(source))
    ROWS.drop(columns="block_loss").to_csv(source, index=False)
    with pytest.raises(UserError, match=r"column block_loss is missing; run .* collect --experiment .*tiny\.yaml`"):
        losses.main(options)
    source.write_text(ROWS.to_csv(index=False).replace("0.5249", "nan"))
    with pytest.raises(UserError, match="line 3: ntp_loss is not a value"):
        losses.main(options)
    source.unlink()
    with pytest.raises(UserError, match="no such file"):
        losses.main(options)
