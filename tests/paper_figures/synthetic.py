"""Made-up records for the tests of tables and figures; no measurement."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from paper_figures.labels import strength
from sbd.config import Experiment, load_experiment

TINY = Path(__file__).parents[2] / "experiments" / "tiny.yaml"


def tiny() -> Experiment:
    return load_experiment(TINY)


def records(experiment: Experiment, n: int = 500) -> pd.DataFrame:
    """One row per job of the experiment, of the shape that real ones have: flat, then falling with gamma."""
    rows = []
    for model, run, decoder, benchmark in experiment.jobs():
        pair = strength(experiment.decoders[decoder])
        gamma = min(pair[1], 4.0) if pair else 0.0
        speed = 1 + 2.2 * (gamma**0.4 if gamma else 0) + (0.6 * gamma if model == "llama-tiny" else 0.5 * gamma)
        score = 97.4 - 6 * gamma**1.3 - (1.2 if model == "llama-tiny" else 0) - (11 if benchmark == "tiny_code" else 0)
        score = round(score * n / 100) * 100 / n
        half = 1.96 * (score * (100 - score) / n) ** 0.5
        tokens = 60 * n
        passes = tokens if pair is None else round(tokens / speed)
        rows.append(
            {
                "model": model,
                "run": run,
                "decoder": decoder,
                "benchmark": benchmark,
                "n": n,
                "score": score,
                "score_low": max(score - half, 0),
                "score_high": min(score + half, 100),
                "tokens_per_forward": tokens / passes,
                "tokens": tokens,
                "forward_passes": passes,
                "prefill_passes": n,
                "seconds": passes / 50,
                "tokens_per_second": tokens / passes * 50,
            }
        )
    return pd.DataFrame(rows)
