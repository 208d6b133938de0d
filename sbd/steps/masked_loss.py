"""``masked-loss``: the masked-token loss of a trained run on held-out text, by slot of the block and by mask rate."""

from __future__ import annotations

import torch

from sbd import columns, modeling
from sbd.config import Experiment
from sbd.data import PackedRows
from sbd.errors import UserError
from sbd.masked_loss import by_slot_and_rate
from sbd.records import write_csv
from sbd.selection import MatpLoss
from sbd.steps.checkpoints import trained_checkpoint


def run(experiment: Experiment, model_name: str, run_name: str) -> None:
    """Write ``masked_loss/MODEL/RUN.csv``, with the block size and draws of ``figures.matp_loss``."""
    if not any(source.validation for source in experiment.data.sources.values()):
        raise UserError("no source has a validation split to measure a loss on; give one of them `validation: COUNT`")
    settings = experiment.figures.matp_loss or MatpLoss(runs=[run_name])
    checkpoint = trained_checkpoint(experiment, model_name, run_name)
    model, tokenizer = modeling.load(checkpoint, dtype=torch.float32)
    rows = PackedRows(experiment.data_folder("validation", model_name), experiment.prepare_command(model_name))
    found = by_slot_and_rate(model, tokenizer, rows, settings.block_size, settings.draws, experiment.seed)
    lines = [{"model": model_name, "run": run_name, **row} for row in found]
    path = experiment.masked_loss_file(model_name, run_name)
    write_csv(lines, path, columns.MASKED_LOSS)
    tokens = sum(line["count"] for line in lines)
    mean = sum(line["loss"] * line["count"] for line in lines) / tokens
    print(f"{path}: {mean:.3f} nats per token over {tokens:,} masked tokens in blocks of {settings.block_size}")
