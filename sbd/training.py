"""One training loop for every objective: read it from top to bottom.

The rows of a step and their corruption are pure functions of (seed, step), so a checkpoint holds weights, optimiser and
step, and a resumed run repeats the very numbers of one that was never stopped.
"""

from __future__ import annotations

import json
import math
import pickle
import shutil
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.batching import Batch, Noise, make_batch
from sbd.data import PackedRows, iterate_batches, replace_folder, row_order
from sbd.errors import UserError
from sbd.files import replacing, write_json
from sbd.objectives import Normalization, Objective
from sbd.progress import progress

Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class TrainingSettings:
    """How a run is trained. Token and row counts are of clean tokens, whatever the objective adds to them.

    batch_rows: packed rows per optimiser step, over all ranks. micro_rows: rows per forward pass of a rank.
    min_lr_ratio: learning rate at the end of the cosine, as a share of the peak.
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
) -> dict[str, Any]:
    """Train ``model`` on ``rows`` and write ``output/checkpoint/`` (a plain Hugging Face folder) when it is done.

    ``output/metrics.jsonl`` gets a line per ``log_every`` steps. ``output/state/`` keeps the newest resumable state; a
    rerun goes on from it. Returns the summary that stands in ``checkpoint/training.json``.
    """
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    accelerator = Accelerator(mixed_precision=mixed_precision(settings.precision))
    ranks, rank = accelerator.num_processes, accelerator.process_index
    if settings.batch_rows % ranks:
        raise UserError(
            f"batch_rows {settings.batch_rows} is not a multiple of the {ranks} processes; change one of them"
        )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
    )
    objective = Objective(model, settings.ntp_weight, settings.block_weight)
    module, optimizer = accelerator.prepare(objective, optimizer)
    identity = {"settings": asdict(settings), "noise": asdict(noise), "data": rows.manifest}
    step = _resume(output, identity, objective, optimizer, accelerator)
    metrics = _Metrics(output / "metrics.jsonl", step, accelerator.is_main_process)
    special: dict[str, Any] = {
        "mask_id": tokenizer.mask_token_id,
        "pad_id": tokenizer.pad_token_id,
        "eos_id": tokenizer.eos_token_id,
    }
    bar = progress(settings.steps, label, initial=step)
    started = time.perf_counter()
    module.train()
    while step < settings.steps:
        chosen = row_order(len(rows), settings.batch_rows, settings.seed, step)[rank::ranks]
        pieces = [chosen[i : i + settings.micro_rows] for i in range(0, len(chosen), settings.micro_rows)]
        batches = [make_batch([rows[i] for i in piece.tolist()], step, noise, **special) for piece in pieces]
        counts = _global_counts(batches, accelerator)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, settings)
        sums = torch.zeros(2, device=accelerator.device)
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            with _no_sync_unless(last, accelerator, module):
                losses = module(batch.to(accelerator.device))
                # Data-parallel wrappers average gradients over ranks; the counts are already global.
                accelerator.backward(objective.total(losses, counts, settings.normalization) * ranks)
            sums += torch.stack([losses.ntp.detach(), losses.block.detach()])
        norm: Any = accelerator.clip_grad_norm_(module.parameters(), settings.max_grad_norm)
        _refuse_nan(sums, norm, step, output)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % settings.log_every == 0 or step == settings.steps:
            ntp, block = (float(v) for v in accelerator.reduce(sums))  # type: ignore[union-attr]
            line = {
                "step": step,
                "ntp_loss": ntp / max(counts[0], 1),
                "block_loss": block / counts[1] if counts[1] else None,
                "learning_rate": learning_rate_at(step - 1, settings),
                "grad_norm": float(norm),
                "seconds": round(time.perf_counter() - started, 3),
            }
            metrics.add(line)
            shown = "" if line["block_loss"] is None else f", block {line['block_loss']:.3f}"
            bar.set_postfix_str(f"NTP {line['ntp_loss']:.3f}{shown}", refresh=False)
        bar.update()
        if step % settings.checkpoint_every == 0 and step < settings.steps:
            _save_state(output, step, identity, objective, optimizer, accelerator)
    bar.close()
    summary: dict[str, Any] = {
        "steps": step,
        "seconds_this_session": round(time.perf_counter() - started, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "precision": accelerator.mixed_precision,
        "processes": ranks,
        **identity,
    }
    if validation is not None:
        summary["validation"] = validate(objective, validation, noise, special, settings.micro_rows)
    if accelerator.is_main_process:
        _save_checkpoint(output, model, tokenizer, summary)
    accelerator.wait_for_everyone()
    return summary


@torch.no_grad()
def validate(
    objective: Objective, rows: PackedRows, noise: Noise, special: dict[str, int], micro_rows: int
) -> dict[str, float | int | None]:
    """Mean NTP and block loss in nats per token over ``rows``, the same corruption at every call."""
    objective.eval()
    device = next(objective.parameters()).device
    sums = torch.zeros(4, dtype=torch.float64)
    for index, documents in enumerate(iterate_batches(rows, micro_rows)):
        # Each batch stands for a step of its own, so that all block sizes occur.
        batch = make_batch(documents, index, noise, **special)
        sums += torch.stack([value.double().cpu() for value in objective(batch.to(device))])
    objective.train()
    ntp, block, ntp_count, block_count = sums.tolist()
    return {
        "ntp_loss": ntp / max(ntp_count, 1),
        "ntp_tokens": int(ntp_count),
        "block_loss": block / block_count if block_count else None,
        "block_tokens": int(block_count),
    }


def _global_counts(batches: list[Batch], accelerator: Accelerator) -> tuple[float, float]:
    """Predicted tokens of the whole step, NTP and block, over all micro-batches and ranks."""
    local = torch.tensor(
        [[(b.ntp_labels >= 0).sum(), (b.block_labels >= 0).sum()] for b in batches], device=accelerator.device
    ).sum(0)
    ntp, block = accelerator.reduce(local).tolist()  # type: ignore[union-attr]
    return float(ntp), float(block)


def _no_sync_unless(last: bool, accelerator: Accelerator, module: torch.nn.Module) -> AbstractContextManager[None]:
    return nullcontext() if last else accelerator.no_sync(module)


def _refuse_nan(sums: Tensor, norm: Tensor | float, step: int, output: Path) -> None:
    values = [*sums.tolist(), float(norm)]
    if not all(math.isfinite(value) for value in values):
        raise UserError(
            f"the loss or gradient is not finite at step {step} (NTP sum {values[0]}, block sum {values[1]}, gradient "
            f"norm {values[2]}); lower learning_rate or raise warmup_steps and run again ({output / 'state'} keeps the "
            "last good state)"
        )


class _Metrics:
    """Lines of ``metrics.jsonl``; on resume, lines of steps that will be trained again are dropped."""

    def __init__(self, path: Path, step: int, main: bool):
        self.path, self.main = path, main
        if main:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() and step else []
            with replacing(path) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["step"] <= step))

    def add(self, line: dict[str, Any]) -> None:
        if self.main:
            with open(self.path, "a", encoding="utf-8") as handle:
                handle.write(json.dumps(line) + "\n")


def _save_state(
    output: Path, step: int, identity: dict[str, Any], objective: Objective, optimizer: Any, accelerator: Accelerator
) -> None:
    if accelerator.is_main_process:
        state = {
            "step": step,
            "identity": identity,
            "model": objective.model.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        with replacing(output / "state" / "latest.pt") as temporary:
            torch.save(state, temporary)
    accelerator.wait_for_everyone()


def _resume(
    output: Path, identity: dict[str, Any], objective: Objective, optimizer: Any, accelerator: Accelerator
) -> int:
    """Load the newest state of this very run, if there is one; returns the number of finished steps."""
    path = output / "state" / "latest.pt"
    if not path.exists():
        return 0
    try:
        state = torch.load(path, map_location=accelerator.device, weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"cannot read the saved state {path} ({reason}); delete it to train from the start") from None
    if json.dumps(state["identity"], sort_keys=True) != json.dumps(identity, sort_keys=True):
        print(f"{path} belongs to other settings or data; training starts from the first step", file=sys.stderr)
        return 0
    objective.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def _save_checkpoint(
    output: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, summary: dict[str, Any]
) -> None:
    partial = output / ".checkpoint.partial"
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    write_json(partial / "training.json", summary)
    replace_folder(partial, output / "checkpoint")
    shutil.rmtree(output / "state", ignore_errors=True)
