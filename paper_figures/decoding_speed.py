"""Wall-clock of the decoders, measured side by side: what they gain, and what equation 16 makes of their passes.

Left: the gain in tokens per second over our own autoregressive loop, of every decoder and of what Hugging Face offers
instead. Right: the gain of set block decoding behind the prefill, which the equation knows nothing of, beside the one
that equation 16 gives from the measured times of passes of 1, k and 2k tokens; the band is 10 percent wide to each
side. Also the table of all numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from paper_figures import command, inputs, style, tables
from paper_figures.labels import ABSENT, mathtext, model_label, run_label, sampling_label
from sbd.config import Arm, Experiment
from sbd.errors import UserError
from sbd.experiment_files import load_experiment

TEXT = ["model", "run", "decoder", "device", "dtype", "torch", "clock"]
EMPTY = [
    "share_outside_model",
    "gain_decoding",
    "gain_predicted",
    "gain_counted",
    "queries_per_pass",
    "ms_pass_k",
    "ms_pass_2k",
    "block_size",
]
COLUMNS = [
    *TEXT,
    *EMPTY,
    "batch",
    "tokens_per_second",
    "tokens_per_forward",
    "ms_per_pass",
    "gain_measured",
    "ms_pass_1",
    "threads",
    "problems",
]
OTHERS = {
    "autoregressive": "autoregressive",
    "hf_generate": "Hugging Face, greedy",
    "hf_prompt_lookup": "Hugging Face, prompt lookup",
}


def decoder_label(experiment: Experiment, run: str, decoder: str) -> str:
    """How a contender is called: its rule and its block size."""
    if decoder in OTHERS:
        return OTHERS[decoder]
    config = experiment.decoders.get(decoder)
    if config is None:
        raise UserError(f"decoder {decoder!r} of the timings is not in the experiment; measure again")
    named = sampling_label(experiment, Arm(run=run, decoder=decoder))
    size = "" if config.block_size is None or "block" in named else f", block {config.block_size}"
    first = ", first slot by NTP" if config.first_token == "next_token" and "first" not in named else ""
    return f"{named}{size}{first}"


def read(paths: Sequence[Path], experiment: Experiment) -> pd.DataFrame:
    """The rows of the files of `python -m sbd speed`. Raises UserError."""
    how = f"run `{experiment.command('speed')} --model MODEL`"
    return pd.concat([inputs.read_csv(path, COLUMNS, TEXT, how, EMPTY) for path in paths], ignore_index=True)


def draw(experiment: Experiment, rows: pd.DataFrame) -> Figure:
    """Both panels; a colour for each model, open marks for batches of several rows."""
    models, batches = inputs.unique(rows, "model"), sorted({int(size) for size in rows["batch"]})
    names = list(dict.fromkeys(zip(rows["run"], rows["decoder"], strict=True)))
    looks = style.looks(models)
    figure, (gains, predicted) = plt.subplots(
        1, 2, figsize=(style.PAGE, 1.5 + 0.22 * len(names)), width_ratios=[1.4, 1], squeeze=True
    )
    height = {name: -number for number, name in enumerate(names)}
    drawn = [(model, batch) for model in models for batch in batches]
    for number, (model, batch) in enumerate(drawn):
        part: list[dict[str, Any]] = inputs.where(rows, model=model, batch=batch).to_dict("records")  # type: ignore[assignment]
        shift = 0.5 * ((number + 0.5) / len(drawn) - 0.5)
        look = {
            "linestyle": "",
            "marker": looks[model]["marker"],
            "color": looks[model]["color"],
            "markerfacecolor": looks[model]["color"] if batch == batches[0] else "white",
        }
        gains.plot(
            [row["gain_measured"] for row in part],
            [height[row["run"], row["decoder"]] - shift for row in part],
            **look,
            label=f"{model_label(experiment, model)}, batch {batch}",
        )
        known = [row for row in part if not pd.isna(row["gain_predicted"])]
        predicted.plot([row["gain_predicted"] for row in known], [row["gain_decoding"] for row in known], **look)
    gains.set_yticks([height[name] for name in names], [mathtext(decoder_label(experiment, *name)) for name in names])
    gains.axvline(1, color="#808080", linewidth=0.8, linestyle=(0, (5, 3)), zorder=1)
    gains.set_ylim(0.6 - len(names), 0.6)
    gains.set_xlim(left=0)
    gains.set_xlabel("tokens per second, over autoregressive")
    known = rows.loc[rows["gain_predicted"].notna()]
    top = 1.15 * max([1.0, *known["gain_predicted"], *known["gain_decoding"]])
    predicted.fill_between([0, top], [0, 0.9 * top], [0, 1.1 * top], color="#d8d8d8", linewidth=0, zorder=0)
    predicted.plot([0, top], [0, top], color="#808080", linewidth=0.8, linestyle=(0, (5, 3)), marker="", zorder=1)
    predicted.set_xlim(0, top)
    predicted.set_ylim(0, top)
    predicted.set_xlabel("gain by equation 16")
    predicted.set_ylabel("gain measured,\nwithout the prefill")
    figure.legend(loc="outside upper center", ncols=min(4, len(drawn)))
    text = (
        f"{_measured(experiment, rows)}; {_problems(rows)}; "
        "grey: within 10% of equation 16, of which the prefill is no part"
    )
    style.note(figure, text)
    return figure


def _measured(experiment: Experiment, rows: pd.DataFrame) -> str:
    """What was timed, where, and by which clock; a checkpoint from elsewhere has no scale and no run."""
    runs = " / ".join(run_label(experiment, run) for run in inputs.unique(rows, "run"))
    known = any(model in experiment.models for model in inputs.unique(rows, "model"))
    first = rows.iloc[0]
    of = f"scale {experiment.scale}, run {runs}; " if known else ""
    return (
        f"{of}{first['device']}, threads: {int(first['threads'])}, {first['dtype']}, torch {first['torch']}; "
        f"medians by the {first['clock']} clock"
    )


def _problems(rows: pd.DataFrame) -> str:
    return f"n = {' to '.join(f'{n:.0f}' for n in sorted(set(rows['problems'])))} problems"


def layout(experiment: Experiment, rows: pd.DataFrame) -> tables.Layout:
    """The numbers as a table."""

    def cell(row: dict[str, Any], name: str, digits: int, factor: float = 1) -> str:
        return ABSENT if pd.isna(row[name]) else f"{factor * row[name]:.{digits}f}"

    records: list[dict[str, Any]] = rows.to_dict("records")  # type: ignore[assignment]
    lines = [
        [
            model_label(experiment, row["model"]),
            str(int(row["batch"])),
            decoder_label(experiment, row["run"], row["decoder"]),
            cell(row, "tokens_per_second", 0),
            cell(row, "tokens_per_forward", 2),
            cell(row, "queries_per_pass", 1),
            cell(row, "ms_per_pass", 2),
            cell(row, "share_outside_model", 0, 100),
            cell(row, "gain_measured", 2),
            cell(row, "gain_decoding", 2),
            cell(row, "gain_predicted", 2),
            cell(row, "gain_counted", 2),
        ]
        for row in records
    ]
    header = [
        "model",
        "batch",
        "decoder",
        "tokens/s",
        "tokens per forward",
        "positions per pass",
        "ms per pass",
        "% outside the model",
        "gain",
        "without prefill",
        "by eq. 16",
        "by counted passes",
    ]
    measured = _measured(experiment, rows)
    caption = (
        f"{measured[0].upper()}{measured[1:]}. Gain: tokens per second over our autoregressive "
        "loop; without prefill: the time of the first token taken off both; by eq. 16: from the times of passes of 1, "
        "k and 2k tokens of every row and the passes of a row per block; by counted passes: the same from the passes "
        "of the batch and what went through them. Positions per pass: of the whole batch, through all layers, after "
        f"the prefill. Over the same {_problems(rows)}."
    )
    groups = [int(count) for count in rows.groupby(["model", "batch"], sort=False).size()]
    return tables.Layout(header, lines, caption, left=3, groups=groups)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: files of `python -m sbd speed` -> decoding_speed.csv, .md, .tex, and .pdf, .png in --figures."""
    parser = command.parser(__doc__)
    parser.add_argument("--figures", type=Path, help="folder of the figure; default: --output")
    parser.add_argument("--speed", required=True, type=Path, nargs="+", help="CSV files of `python -m sbd speed`")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    rows = read(options.speed, experiment)
    paths = tables.write(options.output, "decoding_speed", rows, layout(experiment, rows))
    with style.house_style():
        return paths + style.save(draw(experiment, rows), options.figures or options.output, "decoding_speed")


if __name__ == "__main__":
    command.run(main)
