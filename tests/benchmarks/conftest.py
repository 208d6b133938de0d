"""What all tests of benchmarks need."""

import dataclasses

import pytest

from sbd.evaluation import code


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless loops end sooner than in a real evaluation."""
    monkeypatch.setattr(code, "LIMITS", dataclasses.replace(code.LIMITS, cpu_seconds=3))
