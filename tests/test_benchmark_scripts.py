"""The scripts that are prepared for a GPU run on a CPU too, on few tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_training_steps_and_the_comparison_of_attention(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/gpu_train.py", "--cpu", "--out", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True, timeout=600)
    result = json.loads((tmp_path / "gpu_train.json").read_text())
    assert {line["block_size"] for line in result["attention"]} == {2, 7, 16}
    assert max(line["output"] for line in result["attention"]) < 1e-4
    assert [line["objective"] for line in result["training"]] == ["ntp", "sbd"]
