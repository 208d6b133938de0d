"""``train``: one run of one model, from its parent's checkpoint or from scratch."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from sbd import hub, modeling
from sbd.batching import Noise
from sbd.config import Experiment, RunConfig
from sbd.data import PackedRows
from sbd.errors import UserError
from sbd.files import alone_in
from sbd.planning import micro_rows
from sbd.training import TrainingSettings, train


def run(experiment: Experiment, model_name: str, run_name: str, adopt: bool = False) -> None:
    """Train and write ``checkpoint/``; a rerun goes on from the newest state in ``state/``."""
    config = experiment.runs[run_name]
    make = experiment.prepare_command(model_name)
    rows = PackedRows(experiment.data_folder("train", model_name), make)
    held_out = any(source.validation for source in experiment.data.sources.values())
    validation = PackedRows(experiment.data_folder("validation", model_name), make) if held_out else None
    if config.parent is None:
        model = _new_model(experiment, model_name, rows.tokenizer)
    else:
        model = _parent_model(experiment.run_folder(model_name, config.parent) / "checkpoint", rows.tokenizer)
    model.config.sbd_objective = config.objective
    folder, first_rank = experiment.run_folder(model_name, run_name), int(os.environ.get("RANK", 0)) == 0
    with alone_in(folder) if first_rank else nullcontext():
        summary = train(
            model,
            rows.tokenizer,
            rows,
            folder,
            settings_of(config, micro_rows(experiment, model_name, run_name)),
            noise_of(config),
            validation,
            label=f"{model_name} {run_name}",
            adopt=adopt,
        )
    if not first_rank:
        return
    held = summary.get("validation", {})
    losses = [
        f"{name} {held[key]:.4f}" for name, key in (("NTP", "ntp_loss"), ("block", "block_loss")) if held.get(key)
    ]
    print(
        f"{model_name} {run_name}: {summary['parameters']:,} parameters, {summary['steps']} steps, validation loss "
        + (", ".join(losses) or "not measured")
    )


def settings_of(config: RunConfig, micro_rows: int) -> TrainingSettings:
    """The training settings of a run. The seed of the loop orders the data, so it is the run's ``data_seed``."""
    shared = {
        field.name: getattr(config, field.name) for field in fields(TrainingSettings) if hasattr(config, field.name)
    }
    return TrainingSettings(**{**shared, "seed": config.data_seed, "micro_rows": micro_rows})


def noise_of(config: RunConfig) -> Noise:
    """How a run makes noisy blocks."""
    return Noise(
        kind=config.objective,
        block_size=config.block_size,
        mask_rate=config.mask_rate,
        prompt_loss=config.prompt_loss,
        sdlm_repeats=config.sdlm_repeats,
        seed=config.seed,
    )


def _new_model(experiment: Experiment, name: str, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    config = experiment.models[name]
    if config.architecture is not None:
        return modeling.create(config.architecture, config.shape, tokenizer, experiment.seed)
    assert config.path is not None, "the schema allows no model without both"
    commit = hub.model_commit(config.path, config.revision, experiment.revisions_folder)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            config.path, revision=commit or "main", dtype=torch.float32, attn_implementation="sdpa"
        )
    except (OSError, ValueError) as error:
        raise UserError(f"cannot open the model {config.path}: {str(error).strip().splitlines()[0]}") from None
    found = model.config.to_dict()
    for key, value in config.shape.items():
        if found.get(key, value) != value:
            raise UserError(
                f"{config.path} has {key} {found[key]}, but the experiment plans with {value}; correct its `shape`"
            )
    return modeling.attach_mask_token(model, tokenizer)


def _parent_model(checkpoint: Path, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    if not (checkpoint / "training.json").is_file():
        raise UserError(f"the parent run has no finished checkpoint at {checkpoint}; train it first")
    model, trained_with = modeling.load(checkpoint, dtype=torch.float32, device="cpu")
    if trained_with.get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{checkpoint} was trained with another tokenizer than the prepared data; train the parent run again"
        )
    return model
