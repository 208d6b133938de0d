"""The scripts that are prepared for a GPU run on a CPU too, on few tokens; so does the one with the true widths."""

from __future__ import annotations

import json
import math
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


def available_gib() -> float:
    """Of main memory; without /proc that of a machine on which the test may run."""
    path = Path("/proc/meminfo")
    lines = dict(line.split(":") for line in path.read_text().splitlines()) if path.exists() else {}
    return int(lines["MemAvailable"].split()[0]) / 2**20 if lines else math.inf


@pytest.mark.slow
@pytest.mark.skipif(available_gib() < 14, reason="needs 12 GB of main memory, and some left")
def test_a_layer_of_the_true_widths_takes_a_step_within_12_gb() -> None:
    """A random model knows nothing: its losses are those of a guess among the whole vocabulary, or somewhat more.

    On an eighth of the tokens, since all of them take minutes: weights, gradients and moments are most of the memory.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "benchmarks/true_widths.py", "--tokens", "256"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True, timeout=600)
    result = json.loads(done.stdout)
    assert result["parameters"] > 1.2e9
    assert result["positions"] == 512
    assert result["changed"]
    for loss in ("ntp_loss", "block_loss"):
        assert math.log(128256) - 0.5 < result[loss] < math.log(128256) + 2
    assert result["peak_gb"] <= 12
