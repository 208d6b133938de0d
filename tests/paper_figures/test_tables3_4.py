from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from paper_figures import tables3_4
from sbd import roofline
from sbd.errors import UserError

REPORTED = Path(__file__).parents[2] / "experiments" / "reported"


def test_four_tables(tmp_path: Path) -> None:
    machine = roofline.Hardware("this machine (cpu)", 1e10, 1e10, 4e9, number_bytes=4)
    roofline.write_hardware(tmp_path / "machine.csv", [machine])
    paths = tables3_4.main(
        ["--reported", str(REPORTED), "--output", str(tmp_path), "--machine", str(tmp_path / "machine.csv")]
    )
    assert [path.name for path in paths if path.suffix == ".md"] == [
        "table3.md",
        "table3_corrected.md",
        "table4.md",
        "table4_corrected.md",
    ]
    printed = pd.read_csv(tmp_path / "table3.csv")
    assert len(printed) == 224
    assert max(abs(printed["slowdown"] - printed["slowdown_reported"])) < 0.0005
    lines = (tmp_path / "table3.md").read_text().splitlines()
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == [
        "batch", "KV cache", "k = 1", "k = 2", "k = 4", "k = 8", "k = 16", "k = 32", "k = 64",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[2].strip("|").split("|")][:2] == ["1", "16"]
    assert " 1.004 " in lines[2]
    assert len(lines) == 2 + 32 + 2
    assert "largest difference to the reported ones is 0.00049" in lines[-1]
    corrected = pd.read_csv(tmp_path / "table4_corrected.csv")
    assert len(corrected) == 288 * 4 * 4
    assert set(corrected["hardware"]) == {"H100", "H200", "B200", "this machine (cpu)"}
    text = (tmp_path / "table4_corrected.md").read_text()
    assert (
        "table4_corrected.csv has Llama-3.1-8B, Qwen-3-8B, with and without the LM head, on H100, H200, B200," in text
    )
    # A machine that was measured in float32 moves four bytes a number, the presets one.
    cells = pd.read_csv(tmp_path / "table3_corrected.csv")
    cell = {"model": "Llama-3.1-8B", "lm_head": "yes", "batch_size": 4, "kv_cache_length": 4096, "block_size": 16}
    found = {
        row["hardware"]: row["slowdown"]
        for row in cells.to_dict("records")
        if all(row[name] == value for name, value in cell.items())
    }
    wide = roofline.Precision(4, 4, 4)
    assert found["this machine (cpu)"] == roofline.Roofline(roofline.LLAMA, machine, wide).slowdown(4, 16, 4096)
    narrow = roofline.Precision(1, 1, 1)
    assert found["this machine (cpu)"] != roofline.Roofline(roofline.LLAMA, machine, narrow).slowdown(4, 16, 4096)
    assert found["H100"] == roofline.Roofline(roofline.LLAMA, roofline.H100, narrow).slowdown(4, 16, 4096)
    assert (tmp_path / "table4.tex").read_text().count(r"\midrule") == 9


def test_reported_cells_must_be_all_there(tmp_path: Path) -> None:
    frame = pd.read_csv(REPORTED / "table3_slowdown.csv")
    frame.iloc[1:].to_csv(tmp_path / "table3_slowdown.csv", index=False)
    with pytest.raises(UserError, match="not the 224 cells of table3"):
        tables3_4.printed("table3", tmp_path)
