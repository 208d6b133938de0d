"""Hashes of parts of an experiment, for records and for reruns."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

CHANGES_NOTHING = (
    *("label", "checkpoint_every", "models"),
    *("log_every", "spike_factor", "gpus", "sharded", "activation_checkpointing"),
)
"""Keys that cannot change the result of a run, decoder or benchmark."""


def settings_of(part: BaseModel) -> dict[str, Any]:
    """What a result depends on: a part of the experiment without what only names it or cannot change a result."""
    return part.model_dump(mode="json", exclude={"repeats", *CHANGES_NOTHING})


def fingerprint(*values: Any) -> str:
    """A short hash of plain values or models, for records and for reruns."""
    plain = [value.model_dump(mode="json") if isinstance(value, BaseModel) else value for value in values]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:12]
