"""The paper's own numbers, from ``experiments/reported/``: as blocks of tables 1 and 2, and in a sentence per claim."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from paper_figures import inputs, tables
from paper_figures.labels import TIMES

HOW = "take it from experiments/reported/"
MODELS = {"llama-3.1-8b": "Llama-3.1 8B", "qwen-3-8b": "Qwen-3 8B"}
LOSSES = {"ntp": "NTP", "sbd": "SBD", "sbd_no_ntp": "SBD without NTP loss"}
SAMPLINGS = {"ntp": "NTP"}
BENCHMARKS = {
    "math500": "MATH500",
    "aime25": "AIME25",
    "livecodebench_v6": "LiveCodeBench v6",
    "gsm8k": "GSM8K",
    "humaneval": "HumanEval",
    "humaneval_plus": "HumanEval+",
    "mbpp": "MBPP",
    "mmlu": "MMLU",
    "gpqa": "GPQA",
    "hellaswag": "HellaSwag",
    "winogrande": "WinoGrande",
    "arc_easy": "ARC-E",
    "arc_challenge": "ARC-C",
}


def problems(folder: Path) -> dict[str, int]:
    """Number of problems of the paper's benchmarks, where it is known."""
    frame = inputs.read_csv(folder / "problems.csv", ["benchmark", "n", "source"], ["benchmark", "source"], HOW)
    return {str(name): int(n) for name, n in zip(frame["benchmark"], frame["n"], strict=True)}


def benchmark(name: str, counts: dict[str, int]) -> str:
    """A benchmark of the paper with its number of problems, which the paper does not state."""
    return f"{BENCHMARKS.get(name, name)} (n = {counts.get(name, 'not stated')})"


def table1(folder: Path) -> tables.Layout:
    """The rows of SBD and its baseline of table 1, laid out like ours."""
    frame, counts = _table1(folder), problems(folder)
    names = inputs.unique(frame, "benchmark")
    lines, groups = [], []
    for model in inputs.unique(frame, "model"):
        of_model = inputs.where(frame, model=model)
        arms = list(dict.fromkeys(zip(of_model["training_loss"], of_model["sampling"], strict=True)))
        for loss, sampling in arms:
            part = inputs.where(of_model, training_loss=loss, sampling=sampling).set_index("benchmark").loc[names]
            speeds = part["speedup_nfe"].to_numpy()
            free = sampling == "ntp"
            speed = f"1{TIMES}" if free else f"{speeds.mean():.2f}{TIMES}"
            cells = [
                f"{score:.1f}" + ("" if free else f" ({up:.2f}{TIMES})")
                for score, up in zip(part["score_percent"], speeds, strict=True)
            ]
            label = SAMPLINGS.get(str(sampling), str(sampling))
            lines.append([MODELS.get(model, model), LOSSES.get(str(loss), str(loss)), label, speed, *cells])
        groups.append(len(arms))
    header = ["reported by the paper", "training loss", "sampling", "average speed-up"]
    caption = f"Reported by the paper ({_place(frame)}), at its own scale and on its own benchmarks, without intervals."
    return tables.Layout([*header, *(benchmark(n, counts) for n in names)], lines, caption, left=3, groups=groups)


def table2(folder: Path) -> tables.Layout:
    """Table 2, laid out like ours."""
    frame, counts = _table2(folder), problems(folder)
    tasks, losses = inputs.unique(frame, "task"), inputs.unique(frame, "training_loss")
    scores = frame.set_index(["training_loss", "task"])["accuracy_percent"]
    lines = []
    for loss in losses:
        cells = [
            f"{scores.loc[(loss, task)]:.1f}"
            + (f" ({scores.loc[(loss, task)] - scores.loc[(losses[0], task)]:+.1f})" if loss != losses[0] else "")
            for task in tasks
        ]
        lines.append(["3B", LOSSES.get(loss, loss), *cells])
    caption = (
        f"Reported by the paper ({_place(frame)}), of its 3B model, without intervals; in parentheses differences of "
        "the printed scores."
    )
    header = ["reported by the paper", "training loss", *(benchmark(task, counts) for task in tasks)]
    return tables.Layout(header, lines, caption, left=2)


def speed_up(folder: Path) -> str:
    """What table 1 has at gamma_low."""
    frame = _table1(folder)
    low = inputs.where(frame, sampling="gamma_low")
    between = _against(frame, low, "score_percent", "benchmark", "ntp")
    speeds = low["speedup_nfe"].tolist()
    return f"{_place(frame)}: gamma_low {_range(speeds, 2, False)} {TIMES}, {_range(between)} points against NTP"


def quality_kept(folder: Path) -> str:
    """What table 1 has for SBD models decoded by NTP."""
    frame = _table1(folder)
    rows = inputs.where(frame, training_loss="sbd", sampling="ntp")
    return f"{_place(frame)}: {_range(_against(frame, rows, 'score_percent', 'benchmark', 'ntp'))} points against NTP"


def loss_needed(folder: Path) -> str:
    """What table 2 has without the NTP loss."""
    frame = _table2(folder)
    scores = frame.set_index(["training_loss", "task"])["accuracy_percent"]
    found = [float(scores.loc[("sbd_no_ntp", t)] - scores.loc[("sbd", t)]) for t in inputs.unique(frame, "task")]
    return f"{_place(frame)}: {_range(found)} points against SBD"


def gap_closes(folder: Path) -> str:
    """What figure 5 has for gamma 0.1 after the shortest and the longest training."""
    names = ["benchmark", "iterations", "sampler", "gamma", "accuracy_percent", "source"]
    text = ["benchmark", "iterations", "sampler", "source"]
    frame = inputs.read_csv(folder / "figure5.csv", names, text, HOW, empty=["gamma"])
    lengths, parts = inputs.unique(frame, "iterations"), []
    for name in inputs.unique(frame, "benchmark"):
        gaps = []
        for length in (lengths[0], lengths[-1]):
            part = inputs.where(frame, benchmark=name, iterations=length)
            twin = inputs.where(part, sampler="ntp_autoregressive")["accuracy_percent"].iloc[0]
            gaps.append(inputs.where(part, sampler="eb_entropy", gamma=0.1)["accuracy_percent"].iloc[0] - twin)
        parts.append(f"{BENCHMARKS[name]} {gaps[0]:+.1f} after {lengths[0]} steps, {gaps[1]:+.1f} after {lengths[-1]}")
    return f"{_place(frame)}, gamma 0.1: {'; '.join(parts)}"


def bound_against_factor(folder: Path) -> str:
    """What figures 12 and 13 have: the entropy bound above the factor rule, read off at the same passes."""
    names = ["benchmark", "sampler", "mean_nfe", "accuracy_percent", "source"]
    frame = inputs.read_csv(folder / "figures12_13.csv", names, ["benchmark", "sampler", "source"], HOW)
    parts = []
    for name in inputs.unique(frame, "benchmark"):
        factor = inputs.where(frame, benchmark=name, sampler="factor").sort_values("mean_nfe")
        x, y = factor["mean_nfe"].to_numpy(dtype=float), factor["accuracy_percent"].to_numpy(dtype=float)
        bound = inputs.where(frame, benchmark=name, sampler="eb_entropy")
        found = [
            float(score - np.interp(passes, x, y))
            for passes, score in zip(bound["mean_nfe"], bound["accuracy_percent"], strict=True)
            if x[0] <= passes <= x[-1]
        ]
        parts.append(f"{BENCHMARKS[name]} {_range(found)}")
    return f"{_place(frame)}: points above factor at equal passes: {'; '.join(parts)}"


def without_matp_loss(_: Path) -> str:
    """The paper has no such run."""
    return "no number: the paper trains no model without the masked-token loss but its NTP baseline"


def block_16(folder: Path) -> str:
    """What table 3 has for blocks of 16."""
    names = ["block_size", "slowdown", "source"]
    frame = inputs.read_csv(folder / "table3_slowdown.csv", names, ["source"], HOW)
    return f"{_place(frame)}: {_range(inputs.where(frame, block_size=16)['slowdown'].tolist(), 3, False)}"


def _table1(folder: Path) -> pd.DataFrame:
    text = ["model", "training_loss", "sampling", "benchmark", "source"]
    return inputs.read_csv(folder / "table1.csv", [*text, "score_percent", "speedup_nfe"], text, HOW)


def _table2(folder: Path) -> pd.DataFrame:
    text = ["training_loss", "task", "source"]
    return inputs.read_csv(folder / "table2.csv", [*text, "accuracy_percent"], text, HOW)


def _against(frame: pd.DataFrame, rows: pd.DataFrame, value: str, task: str, loss: str) -> list[float]:
    """Points of ``rows`` above the model trained and sampled by ``loss``, on the same task."""
    baseline = inputs.where(frame, training_loss=loss, sampling=loss).set_index(["model", task])[value]
    return [
        float(score - baseline.loc[(model, name)])
        for model, name, score in zip(rows["model"], rows[task], rows[value], strict=True)
    ]


def _place(frame: pd.DataFrame) -> str:
    return "; ".join(inputs.unique(frame, "source"))


def _range(values: Iterable[float], digits: int = 1, sign: bool = True) -> str:
    form = f"{'+' if sign else ''}.{digits}f"
    numbers = list(values)
    return f"{min(numbers):{form}} to {max(numbers):{form}}"
