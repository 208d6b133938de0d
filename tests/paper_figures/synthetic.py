"""Made-up records for the tests of tables and figures; no measurement."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from paper_figures.labels import strength
from sbd.config import Experiment
from sbd.experiment_files import load_experiment

TINY = Path(__file__).with_name("experiment.yaml")
"""Not experiments/tiny.yaml, which may change while these tests stay."""


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
        score -= {"sbd_no_ntp_loss": 11, "sbd_short": 8, "ntp_short": 3, "sbd_block_16": 4}.get(run, 0)
        score -= 2 * gamma if decoder.startswith("factor") else 0
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
                "tokens_per_forward": None if benchmark == "choices" else tokens / passes,
                "tokens": tokens,
                "forward_passes": passes,
                "prefill_passes": n,
                "seconds": passes / 50,
                "tokens_per_second": None if benchmark == "choices" else tokens / passes * 50,
            }
        )
    return pd.DataFrame(rows)


PAPER = """
extends: {tiny}
scale: made_up
runs:
  ntp_short: &short
    parent: pretrain
    objective: ntp
    steps: 10
    batch_rows: 8
    micro_rows: 8
    learning_rate: 0.003
    warmup_steps: 2
    label: NTP short
  sbd_short: {{<<: *short, objective: sbd, label: SBD short}}
  sbd_no_ntp_loss: {{<<: *short, objective: sbd, ntp_weight: 0, label: SBD without NTP loss}}
  sbd_block_16: {{<<: *short, objective: sbd, block_size: [16, 16], label: SBD block 16}}
decoders:
  confidence_0.1: {{kind: set_block, block_size: 16, sampler: {{gamma: 0.1, order: confidence}}}}
  confidence_0.6: {{kind: set_block, block_size: 16, sampler: {{gamma: 0.6, order: confidence}}}}
  factor_0.2: {{kind: set_block, block_size: 16, sampler: {{rule: factor, factor: 0.2}}}}
  factor_2: {{kind: set_block, block_size: 16, sampler: {{rule: factor, factor: 2}}}}
benchmarks:
  choices: {{label: choices, task: experiments/tasks/choices.yaml, source: tiny_gsm, max_new_tokens: 1}}
x-defaults:
  - &grid [gamma_0, gamma_0.01, gamma_0.1, gamma_0.2, gamma_0.35, gamma_0.6, gamma_1.5, unlimited]
evaluations:
  - {{runs: [ntp, sbd, sbd_short, ntp_short, sbd_no_ntp_loss, sbd_block_16], decoders: [ntp]}}
  - {{runs: [sbd, sbd_short, sbd_block_16], decoders: *grid, benchmarks: &generated [tiny_gsm, tiny_code]}}
  - {{runs: [sbd], decoders: [confidence_0.1, confidence_0.6, factor_0.2, factor_2], benchmarks: *generated}}
figures:
  figure1: {{benchmark: tiny_code}}
  figure4: {{runs: [ntp, sbd, sbd_no_ntp_loss]}}
  figure5:
    decoders: [gamma_0, gamma_0.01, gamma_0.1, gamma_0.6, gamma_1.5]
    lengths: [{{label: 10, run: sbd_short, baseline: ntp_short}}, {{label: 1400, run: sbd, baseline: ntp}}]
  figures12_13:
    run: sbd
    curves:
      EB by entropy: [gamma_0.1, gamma_0.6]
      EB by confidence: [confidence_0.1, confidence_0.6]
      factor: [factor_0.2, factor_2]
  matp_loss: {{runs: [sbd]}}
  table2: {{runs: [ntp, sbd, sbd_no_ntp_loss], benchmarks: [choices]}}
  ablations:
    groups:
      block size:
        - {{run: sbd, decoder: gamma_0.1, label: "drawn from 2 to 16"}}
        - {{run: sbd_block_16, decoder: gamma_0.1, label: always 16}}
      NTP loss: [{{run: sbd, decoder: ntp}}, {{run: sbd_no_ntp_loss, decoder: ntp}}]
  claims:
    baseline: {{run: ntp, decoder: ntp}}
    sbd_ntp: {{run: sbd, decoder: ntp}}
    gamma_low: {{run: sbd, decoder: gamma_0.1}}
    without_ntp_loss: {{run: sbd_no_ntp_loss, decoder: ntp}}
    factor: [{{run: sbd, decoder: factor_0.2}}, {{run: sbd, decoder: factor_2}}]
    entropy_bound: [{{run: sbd, decoder: gamma_0.1}}, {{run: sbd, decoder: gamma_0.6}}]
"""
"""An experiment with an entry for every figure; all its numbers are made up."""


def paper_file(folder: Path) -> Path:
    path = folder / "made_up.yaml"
    path.write_text(PAPER.format(tiny=TINY), encoding="utf-8")
    return path
