"""Resumable states of a training: written beside it, checked before they are trusted, read by any number of ranks.

``state/step-00000500/`` holds the shards of torch's distributed checkpoint, and for each rank that wrote it a
``rank-N.json`` with the sizes and checksums of its files. That file is written last: a state without all of them was
cut off and does not count. The two newest states are kept, so that a damaged one costs one interval and not the run:
one is deleted only when every rank has sealed a newer one.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import warnings
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from sbd.errors import UserError
from sbd.files import write_json

KEPT = 2

# One process without a group is our ordinary case, and no reason to warn.
warnings.filterwarnings("ignore", message="torch.distributed is disabled")
logging.getLogger("torch.distributed.checkpoint").setLevel(logging.WARNING)


class States:
    """The states of one training run. Every method is called by all ranks at the same step.

    identity: what must be equal for a state to be of this run.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], module: nn.Module, optimizer: torch.optim.Optimizer):
        self.folder, self.identity, self.module, self.optimizer = folder, identity, module, optimizer
        distributed = dist.is_available() and dist.is_initialized()
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        # Saving in the background talks between ranks on its own channel, on the CPU.
        self._group: Any = dist.new_group(backend="gloo") if distributed else None
        self._sealer = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self.newest: int | None = None

    def save(self, step: int, extra: dict[str, Any], wait: bool = False) -> None:
        """Copy weights and optimiser aside and write them in the background; ``wait`` returns when they are safe."""
        self.check(wait=True)
        # Now the state before this one is safe on this rank; behind the barrier, on all of them.
        self._barrier()
        folder = self.folder / f"step-{step:08}"
        if self.rank == 0:
            self._prune()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._barrier()
        # Training goes on in the same memory while the files are written: torch copies what is on a GPU, we the rest.
        copied: dict[str, Any] = {
            name: value.detach() if value.is_cuda else value.detach().clone() for name, value in self._tensors().items()
        }
        written = async_save(copied, checkpoint_id=str(folder), process_group=self._group, no_dist=not self._group)
        assert isinstance(written, Future)
        about = {"step": step, "ranks": self.ranks, "identity": self.identity, "extra": extra}
        self._pending = self._sealer.submit(self._seal, written, folder, about)
        self.newest = step
        if wait:
            self.check(wait=True)

    def pass_over(self) -> None:
        """Mark the newest state as one to which ``adopt`` shall not go back: its weights give no finite loss."""
        self.check(wait=True)
        self._barrier()
        if self.rank == 0:
            seal = self.folder / f"step-{self.newest:08}" / "rank-0.json"
            write_json(seal, {**(_read(seal) or {}), "passed_over": True})

    def check(self, wait: bool = False) -> None:
        """Raise a UserError if the save in the background has failed."""
        if self._pending is None or not (wait or self._pending.done()):
            return
        try:
            self._pending.result()
        except (Exception, CheckpointException) as error:  # torch makes the latter no Exception
            causes = getattr(error, "failures", None)  # of a distributed save: by rank
            reason = next(iter(causes.values()))[0] if causes else error
            raise UserError(
                f"the state of step {self.newest} could not be written to {self.folder} "
                f"({' '.join(str(reason).split())}); make room and run again: it goes on from the state "
                "before"
            ) from None
        finally:
            self._pending = None

    def resume(self, adopt: bool = False) -> tuple[int, dict[str, Any]]:
        """Load the newest sound state of this run; returns its step and what was saved with it, (0, {}) without one.

        States of other settings or data are set aside, in another folder. ``adopt`` makes them states of this run
        instead, but for one that is to be passed over.
        """
        damaged: list[str] = []
        foreign: list[Path] = []
        adopted: list[Path] = []
        found: tuple[Path, dict[str, Any]] | None = None
        for folder in sorted(self.folder.glob("step-*"), reverse=True):
            about = _sealed(folder)
            if about is None:
                continue
            if not self._own(about):
                if not adopt:
                    foreign.append(folder)
                    continue
                adopted.append(folder)
            if found or (adopt and about.get("passed_over")):
                continue
            problem = next((found for found in gather_object([self._problem(folder, about["ranks"])]) if found), None)
            if problem:
                damaged.append(problem)
                self._say(f"{problem}; the state before it is used")
                continue
            found = folder, about
        if damaged and not found:
            raise UserError(f"cannot read the saved state: {damaged[0]}; delete {self.folder} to train from the start")
        self._barrier()  # Nothing is moved or deleted before all ranks have looked.
        if self.rank == 0:
            self._set_aside(foreign, "from the first step" if found is None else f"on from step {found[1]['step']}")
            for folder in adopted:
                about = _read(folder / "rank-0.json")
                write_json(folder / "rank-0.json", {**(about or {}), "identity": self.identity})
            # What is newer is damaged, half written or passed over, and would be kept in place of the sound one.
            for folder in self.folder.glob("step-*"):
                if found is None or folder.name > found[0].name:
                    shutil.rmtree(folder)
        self._barrier()
        if found is None:
            return 0, {}
        folder, about = found
        self._load(folder)
        if damaged:
            self._say(f"going on from step {about['step']}")
        self.newest = about["step"]
        return about["step"], about["extra"]

    def remove(self) -> None:
        """Delete all states, when the run is finished."""
        self.check(wait=True)
        if self.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _tensors(self) -> dict[str, Tensor]:
        """Weights and optimiser state by parameter; AdamW's three are made where it has not stepped yet."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.module.named_parameters():
            state = self.optimizer.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device if parameter.is_cuda else "cpu")
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            tensors |= {f"weight.{name}": parameter, **{f"{key}.{name}": value for key, value in state.items()}}
        return tensors

    def _load(self, folder: Path) -> None:
        # Read into the very tensors that are trained; each rank reads its part, whoever wrote it.
        tensors: dict[str, Any] = {name: value.detach() for name, value in self._tensors().items()}
        load(tensors, checkpoint_id=str(folder), process_group=self._group, no_dist=not self._group)

    def _seal(self, written: Future[Any], folder: Path, about: dict[str, Any]) -> None:
        written.result()
        names = [path for path in folder.iterdir() if path.name.startswith(f"__{self.rank}_")]
        if self.rank == 0:
            names.append(folder / ".metadata")
        files = {path.name: [path.stat().st_size, _checksum(path)] for path in sorted(names)}
        write_json(folder / f"rank-{self.rank}.json", {**about, "files": files})

    def _problem(self, folder: Path, ranks: int) -> str | None:
        """What is wrong with the files that this rank looks after."""
        for rank in range(self.rank, ranks, self.ranks):
            about = _read(folder / f"rank-{rank}.json")
            for name, (size, checksum) in about["files"].items() if about else ():
                path = folder / name
                if not path.is_file():
                    return f"{path} is missing"
                if path.stat().st_size != size or _checksum(path) != checksum:
                    return f"{path} is damaged (its checksum differs)"
        return None

    def _own(self, about: dict[str, Any]) -> bool:
        return json.dumps(about["identity"], sort_keys=True) == json.dumps(self.identity, sort_keys=True)

    def _set_aside(self, foreign: list[Path], training: str) -> None:
        """Move states of another identity away, so that they are neither kept in place of own ones nor found again."""
        if not foreign:
            return
        aside = self.folder.with_name(f"{self.folder.name}-of-other-settings")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for folder in foreign:
            folder.rename(aside / folder.name)
        names = ", ".join(sorted(folder.name for folder in foreign))
        self._say(
            f"{names} in {self.folder} belongs to other settings or data and is set aside in {aside} (delete it, or "
            f"move it back and use --adopt); training goes {training}"
        )

    def _prune(self) -> None:
        sound = [path for path in sorted(self.folder.glob("step-*"), reverse=True) if _sealed(path)]
        for path in self.folder.glob("step-*"):
            if path not in sound[: KEPT - 1]:
                shutil.rmtree(path)

    def _barrier(self) -> None:
        if self._group is not None:
            dist.barrier(self._group)

    def _say(self, message: str) -> None:
        if self.rank == 0:
            print(message, file=sys.stderr)


def state_steps(folder: Path) -> list[int]:
    """Steps of the finished states in a folder, ascending."""
    found = (re.fullmatch(r"step-(\d+)", path.parent.name) for path in folder.glob("step-*/rank-0.json"))
    return sorted(int(match[1]) for match in found if match)


def _sealed(folder: Path) -> dict[str, Any] | None:
    """What the first rank says of a state, if every rank has sealed it."""
    about = _read(folder / "rank-0.json")
    if about is None or any(_read(folder / f"rank-{rank}.json") is None for rank in range(about["ranks"])):
        return None
    return about


def _read(path: Path) -> dict[str, Any] | None:
    """A seal, or None where it was not written to its end; one of another shape is a UserError."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    known = {"step": int, "ranks": int, "identity": dict, "extra": dict, "files": dict}
    wrong = [key for key, kind in known.items() if not isinstance(about, dict) or not isinstance(about.get(key), kind)]
    if wrong:
        raise UserError(
            f"{path} is no seal of a saved state ({', '.join(wrong)} missing or wrong); delete {path.parent}: the same "
            "command goes on from the state before it"
        )
    return about


def _checksum(path: Path) -> int:
    value = 0
    with open(path, "rb") as handle:
        while piece := handle.read(1 << 22):
            value = zlib.crc32(piece, value)
    return value
