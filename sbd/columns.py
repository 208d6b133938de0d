"""The columns of the CSV files that ``python -m sbd collect`` writes and tables and figures read, named once."""

JOB = ("model", "run", "decoder", "benchmark")

RECORDS = (
    *JOB,
    "n",
    "score",
    "score_low",
    "score_high",
    "tokens_per_forward",
    "tokens",
    "forward_passes",
    "prefill_passes",
    "seconds",
    "tokens_per_second",
)
"""Of records.csv and table1.csv. Scores in percent; low and high are the 95% interval over problems."""

LOSSES = ("model", "run", "parameters", "steps", "ntp_loss", "ntp_tokens", "block_loss", "block_tokens")
"""Of losses.csv: losses on held-out text in nats per token."""

METRICS = ("model", "run", "step", "ntp_loss", "block_loss")
"""Of metrics.csv: losses on the training data at every logged step."""

PAIR = ("model", "benchmark", "run", "decoder", "baseline_run", "baseline_decoder")
DIFFERENCE = ("n", "difference", "low", "high", "p_value", "only_baseline", "only_arm")
SPEED = ("tokens_per_forward", "tokens_per_forward_low", "tokens_per_forward_high")
DIFFERENCES = (*PAIR, *DIFFERENCE, *SPEED)
"""Of differences.csv: an arm minus its baseline in points, on the same problems, and the speed of the arm."""

MASKED_LOSS = ("model", "run", "block_size", "position", "mask_rate", "loss", "count")
"""Of matp_loss.csv: masked-token loss in nats by slot of the block (from 1) and share of the block that is masked."""

CONTRAST = ("model", "benchmark", "contrast", "run", "decoder")
PASSES = ("passes", "passes_low", "passes_high")
CONTRASTS = (*CONTRAST, "against", "n", "difference", "low", "high", *PASSES)
"""Of contrasts.csv: an arm minus a weighted sum of several others in points, on the same problems; see sbd.differences.

Passes are forward passes per problem: of the arm, and the fewest and the most of the arms that it is compared with.
"""
