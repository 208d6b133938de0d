"""What a training says of its speed, from counts and seconds."""

from __future__ import annotations

import pytest
import torch

from sbd import metrics
from sbd.metrics import Counts, Speed
from sbd.roofline import Shape
from sbd.workload import training_operations
from tests.conftest import ODD_LLAMA as CONFIG


def test_speed_mfu_and_hours_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    speed = Speed(CONFIG, torch.device("cpu"), ranks=2)
    assert speed.lap(5)["mfu"] is None, "the peak of a CPU is not known"
    speed.peak = 1e9
    step = Counts(ntp=900, block=450, clean=1000, tokens=2000, pairs=30000)
    for steps, seconds in ((4, 20.0), (1, 4.0)):  # the second lap counts nothing of the first
        for _ in range(steps):
            speed.add(step)
        now[0] += seconds
        lap = speed.lap(steps_left=1800)
        operations = steps * training_operations(Shape.of("x", CONFIG.to_dict(), 500), 2000, 30000, 1350)
        assert lap["tokens_per_second"] == pytest.approx(steps * 1000 / seconds)
        assert lap["mfu"] == pytest.approx(operations / seconds / (2 * 1e9))
        assert lap["hours_left"] == pytest.approx(1800 * seconds / steps / 3600, abs=1e-3)


@pytest.mark.parametrize(("name", "peak"), [("NVIDIA H100 80GB HBM3", 989.5e12), ("B200", 2250e12), ("T4", None)])
def test_the_peak_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert Speed(CONFIG, torch.device("cuda"), 1).peak == peak
