"""Decoders from the settings of an experiment file, and back into the settings that stand in a record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import sbd
from sbd.errors import UserError


def make_decoder(settings: Any) -> Any:
    """A decoder from the mapping (or pydantic model) of an experiment file; a decoder is returned as it is.

    Keys: ``kind`` and its settings; ``sampler`` is a mapping with ``rule`` (entropy_bound by default) and its number.
    """
    if hasattr(settings, "model_dump"):
        settings = settings.model_dump()
    if not isinstance(settings, Mapping):
        return settings
    given = {name: value for name, value in settings.items() if value is not None and name != "label"}
    kinds = {
        "autoregressive": ("Autoregressive", ()),
        "set_block": ("SetBlock", ("block_size", "sampler", "first_token", "commit")),
        "longest_prefix": ("LongestPrefix", ("block_size", "threshold", "confidence", "rule")),
        "self_speculative": ("SelfSpeculative", ("block_size", "branches")),
    }
    kind = given.pop("kind", None)
    if kind not in kinds:
        raise UserError(f"decoder kind {kind!r} is unknown; use one of {', '.join(kinds)}")
    name, names = kinds[kind]
    if "sampler" in given:
        given["sampler"] = _make_sampler(given["sampler"])
    return getattr(sbd, name)(**{key: value for key, value in given.items() if key in names})


def _make_sampler(settings: Any) -> Any:
    if not isinstance(settings, Mapping):
        return settings
    rules = {
        "entropy_bound": ("EntropyBound", ("gamma", "order")),
        "cumulative_entropy": ("CumulativeEntropy", ("gamma",)),
        "factor": ("Factor", ("factor", "form")),
        "confidence_threshold": ("ConfidenceThreshold", ("threshold",)),
        "top_k": ("TopK", ("count",)),
    }
    rule = settings.get("rule", "entropy_bound")
    if rule not in rules:
        raise UserError(f"sampler rule {rule!r} is unknown; use one of {', '.join(rules)}")
    name, names = rules[rule]
    given = {key: settings[key] for key in names if settings.get(key) is not None}
    if given.get("gamma") == "unlimited":
        given["gamma"] = math.inf
    return getattr(sbd, name)(**given)


def describe_decoder(decoder: Any) -> dict[str, Any]:
    """All settings of a decoder, defaults too, as JSON values; an infinite number is written "unlimited"."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return {"kind": type(value).__name__, **fields}
        if isinstance(value, float) and math.isinf(value):
            return "unlimited"
        return list(value) if isinstance(value, tuple) else value

    described = plain(decoder)
    return described if isinstance(described, dict) else {"kind": repr(decoder)}
