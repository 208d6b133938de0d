"""Checks of the faults of the paper: each computes the sentence that shows one.

They read the reported numbers in ``experiments/reported/``, and run the lines of the paper's code that they are about
as they are printed.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from sbd import roofline
from sbd.roofline import LLAMA, PAPER_H100, PAPER_SHAPE, PRINTED, Roofline

REPORTED = Path("experiments/reported")


READING_ERROR = 0.06
"""Points of score: a printed score is rounded to a tenth, and a drawn one is read to about 0.01."""


def read(name: str) -> list[dict[str, str]]:
    """The rows of a reported table."""
    with open(REPORTED / name, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def fits(percent: float, n: int, places: int = 1) -> bool:
    """Whether some count of n problems, rounded or cut to ``places`` decimals, is this percentage."""
    near = round(percent / 100 * n)
    counts = range(max(0, near - 1), min(n, near + 1) + 1)
    scale = 10**places
    exact = [100 * count / n for count in counts]
    return any(abs(x - percent) < 0.5 / scale + 1e-9 or abs(int(x * scale) / scale - percent) < 1e-9 for x in exact)


CODE_7_INPUT = """
input_ids = sequence[:, :-1]
parallel_label_ids = input_ids.clone()
bsz, seq_len = input_ids.shape
time = torch.rand(size=(bsz, 1))
input_ids_mask = torch.rand(size=input_ids.shape, device=input_ids.device) > time
"""
"""Of code block 7, p. 15, without the name of the device."""
CODE_7_BLOCK = "block_len = torch.randint(max_block_size, (1, )).item()"
CODE_7_LABELS = "parallel_label_ids[:, :-1][input_ids_mask] = -100"
CODE_9 = """
half_seq_len: int = seq_len // 2
is_in_top_left_causal = (q_idx < half_seq_len) & (kv_idx < half_seq_len) & (kv_idx <= q_idx)
q_block_xt = (q_idx - half_seq_len) // block_len
kv_block_xt = (kv_idx - half_seq_len) // block_len
is_in_bottom_right_block = (q_idx >= half_seq_len) & (kv_idx >= half_seq_len) & (q_block_xt == kv_block_xt)
q_block_idx_bl = (q_idx - half_seq_len) // block_len
kv_block_idx_bl = kv_idx // block_len
is_in_bottom_left_block_causal_past = (
    (q_idx >= half_seq_len) & (kv_idx < half_seq_len) & (q_block_idx_bl > kv_block_idx_bl)
)
mask = is_in_top_left_causal | is_in_bottom_right_block | is_in_bottom_left_block_causal_past
"""
"""Code block 9, p. 16, for all queries and keys at once."""
CODE_10 = """
def create_attention_mask_inference(causal_point: int):
    def mask_mod(b, h, q_idx, kv_idx):
        is_causal = (kv_idx <= q_idx)
        is_past_causal_point = (causal_point <= q_idx)
        return is_causal | is_past_causal_point
    return create_block_mask(mask_mod, B=None, H=None, Q_LEN=seq_len, KV_LEN=seq_len)
"""
"""Code block 10, p. 17."""


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run printed lines with these names; returns all names there are then. Random numbers start from one seed."""
    import torch

    known = {"torch": torch, **names}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        exec(code, known)
    return known


def printed_mask(seq_len: int, block_len: int) -> Any:
    """What code block 9 lets attend, ``[seq_len, seq_len]``."""
    import torch

    index = torch.arange(seq_len)
    names = {"q_idx": index[:, None], "kv_idx": index[None, :], "seq_len": seq_len, "block_len": block_len}
    return run(CODE_9, **names)["mask"]


def _sequence(length: int = 65) -> Any:
    import torch

    return torch.arange(8 * length).reshape(8, length)


def labels() -> str:
    """Code block 7."""
    # Without the slice, which cannot be executed.
    found = run(CODE_7_INPUT + CODE_7_LABELS.replace("[:, :-1]", ""), sequence=_sequence())
    masked, kept = found["input_ids_mask"], found["parallel_label_ids"] != -100
    both, other = int((masked & kept).sum()), int((~masked & kept).sum())
    return f"labels kept on masked tokens: {both} of {int(masked.sum())}; on others: {other} of {int((~masked).sum())}"


def label_shapes() -> str:
    """Code block 7."""
    try:
        run(CODE_7_INPUT + CODE_7_LABELS, sequence=_sequence())
    except IndexError as error:
        return f"{type(error).__name__}: {error}"
    return "it can be executed"


def block_length() -> str:
    """Code block 7."""
    code = f"drawn = set()\nfor _ in range(2000):\n    {CODE_7_BLOCK}\n    drawn.add(block_len)"
    drawn = run(code, max_block_size=16)["drawn"]
    try:
        printed_mask(32, 0)
        zero = "is computed"
    except RuntimeError as error:
        zero = f"ends in {error}"
    return f"2000 draws with max_block_size 16 are from {min(drawn)} to {max(drawn)}; the mask of blocks of 0 {zero}"


def mask_length() -> str:
    """Code blocks 7 and 9."""
    from sbd.attention import training_mask

    length = 64
    called, doubled = printed_mask(length, 4), printed_mask(2 * length, 4)
    same = bool((doubled == training_mask(length, 4)).all())
    return (
        f"called with {length} as printed, it is a mask of {tuple(called.shape)} for an input of {2 * length} and "
        f"takes the noisy half to begin at {length // 2}; called with {2 * length} it equals the mask used here: {same}"
    )


def partial_block() -> str:
    """Code block 7 against equation 14."""
    length, block = 10, 4
    summed = length // block * block
    found = run(CODE_7_INPUT, sequence=_sequence(length + 1))
    trained = int((found["parallel_label_ids"][0, summed:] != -100).sum())
    seen = printed_mask(2 * length, block)[length + summed :, length + summed :]
    return (
        f"of {length} tokens in blocks of {block}, equation 14 sums over {summed}; the code gives the other "
        f"{length - summed} labels ({trained}) and lets them see each other ({bool(seen.all())})"
    )


def inference_mask() -> str:
    """Code block 10."""
    code = f"{CODE_10}\ncreate_attention_mask_inference(4)"
    try:
        run(code, create_block_mask=lambda *_, **__: None)
    except NameError as error:
        return f"{type(error).__name__}: {error}"
    return "it can be executed"


def factor_rule() -> str:
    """Appendix B.1."""
    counts = []
    for confidence in (0.99, 0.5, 0.01):
        sure = np.full(16, confidence)
        n = np.arange(1, 17)
        printed, meant = (n + 1) * sure < 1.0, (n + 1) * (1 - sure) < 1.0
        counts.append(f"confidence {confidence}: {printed.sum()} as printed, {meant.sum()} by (n+1)(1-c) < f")
    return "tokens that pass with f = 1, " + "; ".join(counts)


def headline() -> str:
    """Abstract against table 1."""
    speeds: dict[str, list[float]] = {"reasoning": [], "chat": []}
    for row in read("table1.csv"):
        if row["sampling"] == "gamma_low":
            kind = "chat" if row["benchmark"] in ("gsm8k", "humaneval_plus", "mbpp") else "reasoning"
            speeds[kind].append(float(row["speedup_nfe"]))
    return "speed-up at gamma_low: " + "; ".join(f"{kind} {min(x)} to {max(x)}" for kind, x in speeds.items())


def monotone() -> str:
    """Table 1, Llama, MATH500."""
    found = {
        row["sampling"]: row["speedup_nfe"]
        for row in read("table1.csv")
        if (row["model"], row["benchmark"]) == ("llama-3.1-8b", "math500") and row["sampling"].startswith("gamma")
    }
    return f"Llama on MATH500: {found['gamma_high']} at gamma_high, {found['gamma_low']} at gamma_low"


def rounding() -> str:
    """Table 1, AIME25."""
    scores = sorted({float(row["score_percent"]) for row in read("table1.csv") if row["benchmark"] == "aime25"})
    parts = [f"{score} = {round(score * 0.3)}/30 = {100 * round(score * 0.3) / 30:.2f}" for score in scores]
    return "; ".join(parts)


def mbpp_count() -> str:
    """Table 1, MBPP."""
    scores = [float(row["score_percent"]) for row in read("table1.csv") if row["benchmark"] == "mbpp"]
    sizes = [n for n in (500, 427, 399, 378, 257, 974) if all(fits(score, n) for score in scores)]
    return f"of 500, 427, 399, 378, 257 and 974 problems these fit all {len(scores)} scores: {sizes}"


def figure1_points() -> str:
    """Figure 1 against table 1."""
    table = {
        (float(row["speedup_nfe"]), float(row["score_percent"]))
        for row in read("table1.csv")
        if row["benchmark"] == "livecodebench_v6" and row["sampling"].startswith("gamma")
    }
    drawn = [
        (float(r["speedup_nfe"]), float(r["accuracy_percent"])) for r in read("figure1.csv") if r["sampling"] == "eb"
    ]
    nearest = min(max(abs(x - a) / 0.02, abs(y - b) / READING_ERROR) for x, y in drawn for a, b in table)
    fit = all(fits(y, 454, 2) for _, y in drawn)
    some = "some" if nearest <= 1 else "none"
    return f"points within reading error of a point of table 1: {some}; 454 problems fit: {fit}"


def figure1_stars() -> str:
    """Figure 1 against table 1, next-token decoding."""
    rows = [r for r in read("table1.csv") if r["benchmark"] == "livecodebench_v6" and r["sampling"] == "ntp"]
    parts = []
    for star in (row for row in read("figure1.csv") if row["sampling"] == "ntp"):
        score = float(star["accuracy_percent"])
        of_model = [row for row in rows if row["model"] == star["model"]]
        runs = [r["training_loss"] for r in of_model if abs(float(r["score_percent"]) - score) <= READING_ERROR]
        scores = ", ".join(f"{row['score_percent']} trained with {row['training_loss']}" for row in of_model)
        parts.append(f"{star['model']} {score}, in table 1 {scores}: the star is {' or '.join(runs) or 'neither'}")
    return "; ".join(parts)


def mbpp_panel() -> str:
    """Figure 5."""
    scores = [float(row["accuracy_percent"]) for row in read("figure5.csv") if row["benchmark"] == "gsm8k"]
    good = {n: sum(fits(score, n) for score in scores) for n in (1319, 500, 378)}
    return f"of the {len(scores)} scores of the GSM8K panel fit: " + ", ".join(
        f"{count} with n = {n}" for n, count in good.items()
    )


def canvas() -> str:
    """Figure 5 against table 1."""
    found = {row["mean_nfe"] for row in read("figure5.csv") if row["gamma"] == "0"}
    return f"mean forward passes at gamma 0, over all lengths and tasks: {sorted(found)}"


def proxy() -> str:
    """Figures 5, 12 and 13."""
    parts = []
    for name, few in (("gsm8k", 231), ("humaneval", 232)):
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in read("figures12_13.csv"):
            if row["benchmark"] == name and row["sampler"].startswith("eb"):
                curves.setdefault(row["sampler"], []).append((float(row["mean_nfe"]), float(row["accuracy_percent"])))
        for passes in (1024, few):
            at = {rule: _between(passes, points) for rule, points in curves.items()}
            entropy, confidence = at["eb_entropy"], at["eb_confidence"]
            parts.append(f"{name} at {passes} passes entropy {entropy:.1f}, confidence {confidence:.1f}")
    return "; ".join(parts)


def _between(x: float, points: list[tuple[float, float]]) -> float:
    ordered = np.array(sorted(points))
    return float(np.interp(x, ordered[:, 0], ordered[:, 1]))


def roofline_sizes() -> str:
    """Figure 11."""
    printed, meant = Roofline(PRINTED, PAPER_H100), Roofline(PAPER_SHAPE, PAPER_H100)
    ffn = PRINTED.ffn / PAPER_SHAPE.ffn
    parts = [f"feed-forward {ffn:.0f} times too wide, K and V {PRINTED.kv_projection} wide where 1024 is meant"]
    for block, cached in ((16, 16), (64, 2**16), (64, 2**20)):
        pair = f"{printed.slowdown(1, block, cached):.3f} printed, {meant.slowdown(1, block, cached):.3f} corrected"
        parts.append(f"slow-down of block {block} over {cached} tokens: {pair}")
    speeds = [f"{meant.speed_up(1, 32, cached, 4):.3f} over {cached} tokens" for cached in (2**4, 2**16, 2**20)]
    parts.append(
        f"speed-up of block 32 at 4 times fewer passes: {printed.speed_up(1, 32, 2**4, 4):.3f} printed, corrected "
        + ", ".join(speeds)
    )
    return "; ".join(parts)


def bandwidth() -> str:
    """Figure 6."""
    used = PAPER_H100.bandwidth
    return f"{used:.4g} bytes/s in the code, 3.35e12 on the data sheet: {used / 3.35e12:.4f} times"


def lm_head() -> str:
    """Figure 11."""
    with_head, without = (Roofline(shape, roofline.H100) for shape in (LLAMA, LLAMA.without_head()))
    parts = []
    for block in (1, 16):
        share = 1 - without.forward(1, block, 1024) / with_head.forward(1, block, 1024)
        parts.append(f"{share:.1%} at block {block}")
    return "share of the LM head in a pass of Llama-3.1-8B, batch 1, 1024 cached tokens: " + ", ".join(parts)
