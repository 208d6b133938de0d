"""How runs, decoders and arms are called in a table or figure, from the labels of the experiment."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from sbd.config import DecoderConfig, Experiment
from sbd.selection import Arm

TIMES = "\N{MULTIPLICATION SIGN}"
GAMMA = "\N{GREEK SMALL LETTER GAMMA}"
ABSENT = "\N{EN DASH}"
"""A number that the experiment does not ask for; one that it asks for and that has no record is "missing"."""


def model_label(experiment: Experiment, model: str) -> str:
    """The label of a model, or its name; one that is not of the experiment is called by its name."""
    known = experiment.models.get(model)
    return (known and known.label) or model


def run_label(experiment: Experiment, run: str) -> str:
    """The label of a run (its training loss), or its name; one that is not of the experiment by its name."""
    known = experiment.runs.get(run)
    return (known and known.label) or run


def benchmark_label(experiment: Experiment, benchmark: str, n: int) -> str:
    """The label of a benchmark with its number of problems."""
    return f"{experiment.benchmarks[benchmark].label or benchmark} (n = {n})"


def strength(decoder: DecoderConfig) -> tuple[str, float] | None:
    """Name and value of the one number that a decoder trades accuracy for speed with; None without one."""
    if decoder.kind == "longest_prefix":
        return ("tau", float(decoder.threshold or 0))
    if decoder.sampler is None:
        return None
    for name in ("gamma", "factor", "threshold", "count"):
        value = getattr(decoder.sampler, name)
        if value is not None:
            return (name, float(value))
    return None


def number(value: float) -> str:
    """A number as short as it is exact; infinity as its sign."""
    return "\N{INFINITY}" if math.isinf(value) else f"{value:g}"


def sampling_label(experiment: Experiment, arm: Arm) -> str:
    """What stands in the sampling column: the label of the arm or decoder, with the number that it stands for."""
    decoder = experiment.decoders[arm.decoder]
    pair = strength(decoder)
    if pair is None:
        return arm.label or decoder.label or ("NTP" if decoder.kind == "autoregressive" else arm.decoder)
    label = arm.label or decoder.label or pair[0]
    if re.search(r"\d", label):
        return label
    named = re.sub(rf"\b({pair[0]}\w*)", rf"\1 = {number(pair[1])}", label, count=1)
    return named if named != label else f"{label} ({pair[0]} = {number(pair[1])})"


def blocks_text(experiment: Experiment, arms: Iterable[Arm]) -> str:
    """ "; blocks of 16" where all arms decode blocks of one size; nothing otherwise."""
    sizes = {experiment.decoders[arm.decoder].block_size for arm in arms}
    return f"; blocks of {size}" if len(sizes) == 1 and isinstance(size := sizes.pop(), int) else ""


_GREEK = {"gamma": GAMMA, "tau": "\N{GREEK SMALL LETTER TAU}"}

_COMPARED = {"<=": r"$\leq$", ">=": r"$\geq$", "<": "$<$", ">": "$>$"}
"""Outside of mathematics the default fonts of TeX have upside-down marks in the places of < and >."""


def markdown(text: str) -> str:
    """A label in Markdown: Greek letters, and no sign that ends a cell."""
    for name, letter in _GREEK.items():
        text = re.sub(rf"\b{name}(?=\b|_)", letter, text)
    return text.replace("|", "\\|")


def tex(text: str) -> str:
    """A label in TeX: Greek letters with subscripts, the rest escaped."""
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text)
    escaped = escaped.replace("\N{INFINITY}", r"$\infty$").replace(TIMES, r"$\times$")
    escaped = re.sub("[<>]=?", lambda found: _COMPARED[found.group()], escaped)
    for name in _GREEK:
        escaped = re.sub(rf"\b{name}\\_(\w+)", rf"$\\{name}_{{\\mathrm{{\1}}}}$", escaped)
        escaped = re.sub(rf"(?<!\\)\b{name}\b", rf"$\\{name}$", escaped)
    return escaped


def mathtext(text: str) -> str:
    """A label in a figure: Greek letters with subscripts."""
    for name in _GREEK:
        text = re.sub(rf"\b{name}_(\w+)", rf"$\\{name}_\\mathrm{{\1}}$", text)
        text = re.sub(rf"(?<![\\\w]){name}\b", rf"$\\{name}$", text)
    return text
