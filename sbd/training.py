"""One training loop for every objective: read it from top to bottom.

The rows of a step and their corruption are pure functions of (seed, step), so a saved state holds weights, optimiser
and step, and a resumed run repeats the very numbers of one that was never stopped. Of the number of ranks it depends
only by the order in which numbers are added.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd import parallel
from sbd.batching import Batch, Noise, make_batch
from sbd.data import PackedRows, iterate_batches, replace_folder, row_order
from sbd.errors import UserError
from sbd.files import write_json
from sbd.interruption import Stopped, StopRequest
from sbd.metrics import Counts, Metrics, Speed, count, shown
from sbd.objectives import Normalization, Objective
from sbd.progress import progress
from sbd.states import States

Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class TrainingSettings:
    """How a run is trained. Token and row counts are of clean tokens, whatever the objective adds to them.

    batch_rows: packed rows per optimiser step, over all ranks. micro_rows: rows per forward pass of a rank.
    min_lr_ratio: learning rate at the end of the cosine, as a share of the peak.
    spike_factor: a step whose loss is so many times the running mean stops the run, with its state saved.
    sharded: FSDP2, where there are several ranks. attention: None leaves that of the model. pad_multiple: see
    make_batch.
    """

    steps: int
    batch_rows: int
    micro_rows: int
    learning_rate: float
    warmup_steps: int
    min_lr_ratio: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0
    ntp_weight: float = 1.0
    block_weight: float = 1.0
    normalization: Normalization = "tokens"
    precision: Precision = "auto"
    seed: int = 0
    checkpoint_every: int = 500
    log_every: int = 10
    spike_factor: float | None = None
    sharded: bool = False
    activation_checkpointing: bool = False
    attention: str | None = None
    pad_multiple: int = 1
    checkpoint_precision: Literal["fp32", "bf16"] = "fp32"


EXECUTION = {
    *("micro_rows", "checkpoint_every", "log_every", "spike_factor", "sharded", "activation_checkpointing"),
    *("pad_multiple", "checkpoint_precision"),
}
"""Settings of how a run is executed: a state saved with others of them is of the same run."""


def learning_rate_at(step: int, settings: TrainingSettings) -> float:
    """Linear warm-up, then cosine annealing to ``min_lr_ratio`` of the peak."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    return settings.learning_rate * (settings.min_lr_ratio + (1 - settings.min_lr_ratio) * cosine)


def mixed_precision(precision: Precision) -> Literal["no", "bf16"]:
    """bf16 autocast where the hardware multiplies bf16; emulated it is many times slower than float32."""
    if precision != "auto":
        return "bf16" if precision == "bf16" else "no"
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "no"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "no"


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: PackedRows,
    output: str | Path,
    settings: TrainingSettings,
    noise: Noise,
    validation: PackedRows | None = None,
    label: str = "train",
    adopt: bool = False,
) -> dict[str, Any]:
    """Train ``model`` on ``rows`` and write ``output/checkpoint/`` (a plain Hugging Face folder) when it is done.

    ``output/metrics.jsonl`` gets a line per ``log_every`` steps. ``output/state/`` keeps the newest resumable states; a
    rerun goes on from the newest sound one (``adopt``: also from one of other settings, and past what stopped it).
    Returns the summary that stands in ``checkpoint/training.json``. Raises Stopped after SIGTERM or SIGUSR1, with the
    state of that step saved.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    AcceleratorState._reset_state()  # else a process could not train again in another precision
    accelerator = Accelerator(mixed_precision=mixed_precision(settings.precision))
    ranks, rank = accelerator.num_processes, accelerator.process_index
    if settings.batch_rows % ranks:
        raise UserError(
            f"batch_rows {settings.batch_rows} is not a multiple of the {ranks} processes; change one of them"
        )
    if settings.attention is not None:
        model.set_attn_implementation(settings.attention)
    if settings.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    objective = Objective(model, settings.ntp_weight, settings.block_weight)
    sharded = settings.sharded and ranks > 1
    module = parallel.shard(objective, accelerator) if sharded else accelerator.prepare(objective)
    optimizer = torch.optim.AdamW(
        module.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=accelerator.device.type == "cuda" or None,
    )
    identity = {"settings": asdict(settings), "noise": asdict(noise), "data": rows.manifest}
    kept = {name: value for name, value in identity["settings"].items() if name not in EXECUTION}
    states = States(output / "state", {**identity, "settings": kept}, objective, optimizer)
    step, extra = states.resume(adopt)
    # Adopted after a spike, the step that made it is taken: the same rows would give the same loss again.
    running_mean: float | None = None if adopt else extra.get("running_mean")
    metrics = Metrics(output / "metrics.jsonl", step, accelerator.is_main_process)
    speed = Speed(model.config, accelerator.device, ranks)
    special: dict[str, Any] = {
        "mask_id": tokenizer.mask_token_id,
        "pad_id": tokenizer.pad_token_id,
        "eos_id": tokenizer.eos_token_id,
        "multiple": settings.pad_multiple,
    }
    bar = progress(settings.steps, label, initial=step, disable=not accelerator.is_main_process)
    started = time.perf_counter()
    module.train()
    with StopRequest() as stop:
        while step < settings.steps:
            chosen = row_order(len(rows), settings.batch_rows, settings.seed, step)[rank::ranks]
            pieces = [chosen[i : i + settings.micro_rows] for i in range(0, len(chosen), settings.micro_rows)]
            batches = [make_batch([rows[i] for i in piece.tolist()], step, noise, **special) for piece in pieces]
            counts = _global_counts(batches, stop, accelerator)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(step, settings)
            sums = torch.zeros(2, device=accelerator.device)
            for index, batch in enumerate(batches):
                # A sharded model adds its gradients over the ranks after every pass: kept until the last one, each rank
                # would hold those of the whole model, and the plan counts a share of them.
                sync = sharded or index == len(batches) - 1
                with _no_sync_unless(sync, accelerator, module):
                    losses = module(batch.to(accelerator.device))
                    # Data-parallel wrappers average gradients over ranks; the counts are already global.
                    accelerator.backward(objective.total(losses, counts.predicted, settings.normalization) * ranks)
                sums += torch.stack([losses.ntp.detach(), losses.block.detach()])
            norm = parallel.whole(accelerator.clip_grad_norm_(module.parameters(), settings.max_grad_norm))
            ntp, block = accelerator.reduce(sums).tolist()  # type: ignore[union-attr]
            loss = (ntp + block) / max(sum(counts.predicted), 1)
            if problem := _problem(step, ntp, block, norm, loss, running_mean, settings.spike_factor):
                finite = math.isfinite(loss) and math.isfinite(norm)
                if states.newest != step:
                    states.save(step, {"running_mean": running_mean}, wait=True)
                if not finite:
                    states.pass_over()
                onward = "takes this step" if finite else "goes back to the state before it, or to the first step"
                raise UserError(
                    f"{problem}; lower learning_rate or raise warmup_steps and run again with --adopt (of Snakemake: "
                    f"--config adopt=true), which {onward}; the states are in {output / 'state'}"
                )
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            running_mean = loss if running_mean is None else 0.98 * running_mean + 0.02 * loss
            speed.add(counts)
            if step % settings.log_every == 0 or step == settings.steps:
                line = {
                    "step": step,
                    "ntp_loss": ntp / max(counts.ntp, 1),
                    "block_loss": block / counts.block if counts.block else None,
                    "learning_rate": learning_rate_at(step - 1, settings),
                    "grad_norm": norm,
                    "seconds": round(time.perf_counter() - started, 3),
                    **speed.lap(settings.steps - step),
                }
                metrics.add(line)
                bar.set_postfix_str(shown(line), refresh=False)
            bar.update()
            states.check()
            if counts.stop and step < settings.steps:
                if states.newest != step:
                    states.save(step, {"running_mean": running_mean}, wait=True)
                bar.close()
                name = signal.Signals(counts.stop).name
                raise Stopped(f"{label}: stopped by {name} after step {step} of {settings.steps}; its state is saved")
            if step % settings.checkpoint_every == 0 and step < settings.steps:
                states.save(step, {"running_mean": running_mean})
    bar.close()
    summary: dict[str, Any] = {
        "steps": step,
        "seconds_this_session": round(time.perf_counter() - started, 1),
        "parameters": objective.model.num_parameters(),
        "precision": accelerator.mixed_precision,
        "processes": ranks,
        **identity,
    }
    if validation is not None:
        summary["validation"] = validate(objective, validation, noise, special, settings.micro_rows, accelerator)
    as_it_is = settings.checkpoint_precision == "fp32" and not sharded
    weights = None if as_it_is else parallel.gathered(model, settings.checkpoint_precision)
    if accelerator.is_main_process:
        _save_checkpoint(output, model, weights, settings.checkpoint_precision, tokenizer, summary)
    accelerator.wait_for_everyone()
    states.remove()
    return summary


@torch.no_grad()
def validate(
    objective: Objective,
    rows: PackedRows,
    noise: Noise,
    special: dict[str, int],
    micro_rows: int,
    accelerator: Accelerator,
) -> dict[str, float | int | None]:
    """Mean NTP and block loss in nats per token over ``rows``, the same corruption at every call."""
    objective.eval()
    ranks, rank = accelerator.num_processes, accelerator.process_index
    sums = torch.zeros(4, dtype=torch.float64)
    pieces = list(enumerate(iterate_batches(rows, micro_rows)))
    for first in range(0, len(pieces), ranks):
        # A sharded model needs all ranks at every pass; where the last round has too few, its end is read twice.
        mine = min(first + rank, len(pieces) - 1)
        # Each batch stands for a step of its own, so that all block sizes occur.
        batch = make_batch(pieces[mine][1], mine, noise, **special)
        values = torch.stack([value.double().cpu() for value in objective(batch.to(accelerator.device))])
        sums += values if first + rank == mine else 0
    objective.train()
    sums = accelerator.reduce(sums.to(accelerator.device))
    ntp, block, ntp_count, block_count = sums.tolist()  # type: ignore[union-attr]
    return {
        "ntp_loss": ntp / max(ntp_count, 1),
        "ntp_tokens": int(ntp_count),
        "block_loss": block / block_count if block_count else None,
        "block_tokens": int(block_count),
    }


def _global_counts(batches: list[Batch], stop: StopRequest, accelerator: Accelerator) -> Counts:
    """Of the whole step, over all micro-batches and ranks; and whether any rank was asked to stop."""
    local = torch.tensor([[*count(batch), 0] for batch in batches], device=accelerator.device).sum(0)
    local[-1] = stop.signal
    *sums, stopped = accelerator.gather(local[None]).unbind(1)  # type: ignore[union-attr]
    return Counts(*(int(values.sum()) for values in sums), stop=int(stopped.max()))


def _no_sync_unless(sync: bool, accelerator: Accelerator, module: torch.nn.Module) -> AbstractContextManager[None]:
    return nullcontext() if sync else accelerator.no_sync(module)


def _problem(
    step: int, ntp: float, block: float, norm: float, loss: float, mean: float | None, spike_factor: float | None
) -> str | None:
    """What speaks against this step's update, the same on every rank."""
    if not all(math.isfinite(value) for value in (ntp, block, norm)):
        return f"the loss or gradient is not finite at step {step} (NTP sum {ntp}, block sum {block}, norm {norm})"
    if spike_factor is not None and mean is not None and loss > spike_factor * mean:
        return f"the loss {loss:.3f} of step {step} is over {spike_factor:g} times its running mean {mean:.3f}"
    return None


def _save_checkpoint(
    output: Path,
    model: PreTrainedModel,
    weights: dict[str, Any] | None,
    precision: str,
    tokenizer: PreTrainedTokenizerBase,
    summary: dict[str, Any],
) -> None:
    partial = output / ".checkpoint.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        model.save_pretrained(partial, state_dict=weights)
    except (OSError, SafetensorError) as error:  # the latter is no OSError, even where the disk is full
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"the checkpoint could not be written to {output} ({' '.join(str(error).split())}); make room and run "
            "again: it goes on from the last saved state"
        ) from None
    if precision == "bf16":
        # Hugging Face writes the dtype of the trained weights; what opens the folder goes by it.
        config = json.loads((partial / "config.json").read_text(encoding="utf-8"))
        write_json(partial / "config.json", {**config, "dtype": "bfloat16"})
    tokenizer.save_pretrained(partial)
    write_json(partial / "training.json", summary)
    replace_folder(partial, output / "checkpoint")
