"""The benchmark of random models runs and writes what it measured, here of a model too small to mean anything."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_row_for_each_decoder_with_the_name_of_the_machine(tmp_path: Path) -> None:
    options = ["--shape", "tiny", "--threads", "1", "--clock", "cpu", "--batches", "1", "2", "--repeats", "1"]
    options += ["--prompt", "4", "--new", "16", "--decoders", "set_block_16_4_per_pass", "self_speculative_8"]
    command = [sys.executable, "benchmarks/random_llama.py", *options, "--output", str(tmp_path / "out.csv")]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, check=True, capture_output=True, text=True)
    with open(tmp_path / "out.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    ours = ["autoregressive", "set_block_16_4_per_pass", "self_speculative_8"]
    assert [row["decoder"] for row in rows] == [*ours, "hf_generate", "hf_prompt_lookup", *ours, "hf_generate"]
    assert float(rows[1]["tokens_per_forward"]) == 4
    assert float(rows[1]["gain_predicted"]) > 0
    assert all(row["device"].startswith("cpu") and row["clock"] == "cpu" for row in rows)
    assert (rows[0]["shape"], rows[0]["new"], rows[0]["execution"]) == ("tiny", "16", "eager")
