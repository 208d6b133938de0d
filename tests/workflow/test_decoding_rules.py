"""The rules that an experiment has only if it asks for them: wall-clock and pages of decoding."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import planned, snakemake
from tests.workflow.test_run import PAPER

pytestmark = pytest.mark.slow


def test_an_experiment_that_asks_is_timed_and_shown(project: Path) -> None:
    file = project / "experiments/smoke.yaml"
    raw = yaml.safe_load(file.read_text())
    raw["decoders"] = {"self_speculative": {"block_size": 4}}
    raw["speed"] = {
        "run": "sbd",
        "decoders": ["gamma_0.1", "self_speculative"],
        "models": ["llama-tiny"],
        "batch_sizes": [2],
        "problems": 2,
        "repeats": 1,
    }
    raw["traces"] = {"model": "qwen3-tiny", "run": "sbd", "decoders": ["ntp", "gamma_0.1"]}
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    timed = {"speed": 1, "decoding_speed": 1, "traces": 1}
    # Every table and figure depends on what the experiment says; nothing is trained, evaluated or collected again.
    drawn = {name: jobs for name, jobs in PAPER.items() if name != "collect"}
    assert planned(project) == {**timed, **drawn}
    done = snakemake(project)
    assert done.returncode == 0, done.stdout
    results = project / "results/smoke"
    with open(results / "tables/decoding_speed.csv", newline="") as lines:
        rows = [(row["model"], row["batch"], row["decoder"]) for row in csv.DictReader(lines)]
    names = ("autoregressive", "gamma_0.1", "self_speculative", "hf_generate")
    assert rows == [("llama-tiny", "2", name) for name in names]
    for name in ("tables/decoding_speed.md", "figures/decoding_speed.pdf", "figures/decoding_speed.png"):
        assert (results / name).stat().st_size > 0
    assert sorted(page.name for page in (results / "traces").iterdir()) == ["gamma_0.1.html", "ntp.html"]
    assert planned(project) == {}

    done = snakemake(project, "--report", "results/smoke/report.html")
    assert done.returncode == 0, done.stdout
    report = (results / "report.html").read_text(encoding="utf-8")
    for text in ("Decoding, pass by pass", "Scale smoke", "gamma_0.1.html", "decoding_speed"):
        assert text in report

    raw["speed"]["problems"] = 4
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    assert planned(project) == {"speed": 1, "decoding_speed": 1, **drawn}
