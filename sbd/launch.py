"""Start this very command once for each GPU of a run, as torchrun does, and give back the exit status of the ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sbd.errors import UserError
from sbd.interruption import STOPPED

SAVING_SECONDS = 1800
"""After a signal the ranks get so long to save before they are killed; the cluster's own limit is shorter."""


def device_is_cpu() -> bool:
    """SBD_DEVICE=cpu: ranks run on the CPU although GPUs are asked for (for tests of the machinery)."""
    return os.environ.get("SBD_DEVICE") == "cpu"


def missing_ranks(gpus: int, what: str) -> int:
    """How many ranks to start: 0 in a rank, or where one process will do. Too few GPUs are a UserError, early."""
    if "WORLD_SIZE" not in os.environ and gpus and not device_is_cpu():
        import torch

        found = torch.cuda.device_count()
        if found < gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
            raise UserError(
                f"{what} asks for {gpus} GPU(s) and this machine shows {found} (CUDA_VISIBLE_DEVICES is {visible}); "
                "run it where they are, or set `gpus` of the run to what is there"
            )
    return gpus if gpus > 1 and "WORLD_SIZE" not in os.environ else 0


def run_ranks(ranks: int, arguments: Sequence[str]) -> int:
    """``python -m sbd ARGUMENTS`` in ``ranks`` processes; returns 0, STOPPED, or the status that one ended with."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    threads = int(os.environ.get("OMP_NUM_THREADS", ranks))
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads // ranks))
    if device_is_cpu():
        os.environ["ACCELERATE_USE_CPU"] = "true"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=f"sbd-{os.getpid()}",
        max_restarts=0,
        signals_to_handle="SIGTERM,SIGUSR1,SIGINT",
        shutdown_timeout=SAVING_SECONDS,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "sbd", *arguments)
    except ChildFailedError as error:
        return max((failure.exitcode for failure in error.failures.values()), key=lambda status: status == STOPPED)
    except SignalException:
        return STOPPED
    return 0
