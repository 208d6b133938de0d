"""``collect``: what is no number in the files of a training is refused by the name of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sbd.config import Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.steps.collect import held_out_losses, training_losses
from tests.cli.helpers import EXPERIMENT

SUMMARY = {"parameters": 10, "steps": 2, "validation": {"ntp_loss": 1.5, "ntp_tokens": 7, "block_loss": None}}
LINE = {"step": 1, "ntp_loss": 1.5, "block_loss": None, "mfu": None}


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.chdir(tmp_path)
    Path("mini.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    loaded = load_experiment("mini.yaml")
    (loaded.run_folder("llama", "sbd") / "checkpoint").mkdir(parents=True)
    return loaded


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "1e999", '"low"'])
@pytest.mark.parametrize("key", ["ntp_loss", "block_loss"])
def test_a_loss_that_is_no_number_is_refused(experiment: Experiment, key: str, wrong: str) -> None:
    folder = experiment.run_folder("llama", "sbd")

    def write(summary: dict[str, Any], line: dict[str, Any]) -> None:
        texts = [json.dumps(value).replace('"WRONG"', wrong) for value in (summary, line)]
        (folder / "checkpoint/training.json").write_text(texts[0])
        (folder / "metrics.jsonl").write_text(texts[1] + "\n")

    write(SUMMARY, LINE)
    assert held_out_losses(experiment, "llama", "sbd")["ntp_loss"] == 1.5
    assert training_losses(experiment, "llama", "sbd")[0]["ntp_loss"] == 1.5
    write({**SUMMARY, "validation": {**SUMMARY["validation"], key: "WRONG"}}, {**LINE, key: "WRONG"})
    with pytest.raises(UserError, match=rf"training\.json is damaged .*{key} is .*; delete it and run `snakemake"):
        held_out_losses(experiment, "llama", "sbd")
    with pytest.raises(UserError, match=rf"metrics\.jsonl is not a file of training losses .*{key} is .*; delete"):
        training_losses(experiment, "llama", "sbd")
