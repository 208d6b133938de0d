"""Tables 3 and 4 of the paper, from the roofline: as printed beside the reported cells, and with the true sizes.

`table3` and `table4` repeat the paper; `table3_corrected` and `table4_corrected` hold every model and machine in their
CSV, each with as many bytes per number as its peak is of (FP8 for the presets), and show one of them, Llama-3.1-8B with
its LM head on an H100, as Markdown and TeX.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paper_figures import command, inputs, tables
from sbd import roofline
from sbd.errors import UserError
from sbd.roofline import Hardware, Roofline

MODELS = (roofline.LLAMA.without_head(), roofline.LLAMA, roofline.QWEN.without_head(), roofline.QWEN)
MACHINES = (roofline.H100, roofline.H200, roofline.B200)
TABLES = {
    "table3": (
        roofline.table3,
        "slowdown",
        ["batch_size", "kv_cache_length"],
        "Slow-down of a forward pass over a block",
    ),
    "table4": (
        roofline.table4,
        "speedup",
        ["nfe_speedup", "batch_size", "kv_cache_length"],
        "Wall-clock speed-up that a speed-up in forward passes (NFE) gives",
    ),
}
NAMES = {"nfe_speedup": "NFE speed-up", "batch_size": "batch", "kv_cache_length": "KV cache"}


def printed(name: str, reported: Path) -> tuple[pd.DataFrame, tables.Layout]:
    """A table as printed, each cell beside the reported one. Raises UserError where they have not the same cells."""
    cells, value, rows, title = TABLES[name]
    found = pd.DataFrame(cells(Roofline(roofline.PRINTED, roofline.PAPER_H100)))
    keys = [*rows, "block_size"]
    file = reported / f"{name}_{value}.csv"
    paper = inputs.read_csv(file, [*keys, value], [], "take it from experiments/reported/")
    both = found.merge(paper[[*keys, value]], on=keys, how="outer", suffixes=("", "_reported"), validate="one_to_one")
    if both.isna().to_numpy().any() or len(both) != len(found):
        raise UserError(f"{file}: not the {len(found)} cells of {name}; take it from experiments/reported/")
    difference = (both[value] - both[f"{value}_reported"]).abs().max()
    caption = (
        f"{title}, roofline with the sizes that the paper's code has. All {len(both)} cells are computed; the largest "
        f"difference to the reported ones is {difference:.5f}."
    )
    return both, _layout(found, value, rows, caption)


def corrected(name: str, machines: Sequence[Hardware]) -> tuple[pd.DataFrame, tables.Layout]:
    """A table for each true model and machine, and the layout of Llama with its LM head on the first of them."""
    cells, value, rows, title = TABLES[name]
    frames = {
        (model, machine.name): pd.DataFrame(cells(Roofline(model, machine))) for machine in machines for model in MODELS
    }
    parts = [
        frame.assign(model=model.name, lm_head="yes" if model.vocabulary else "no", hardware=machine)
        for (model, machine), frame in frames.items()
    ]
    every = pd.concat(parts, ignore_index=True)
    first = ["model", "lm_head", "hardware"]
    order = [*first, *(column for column in every.columns if column not in first)]
    machine = machines[0].name
    caption = f"{title}, roofline with the true sizes of {roofline.LLAMA.name} with its LM head, FP8, on {machine}. "
    caption += (
        f"{name}_corrected.csv has {', '.join(dict.fromkeys(model.name for model in MODELS))}, with and without the LM "
        f"head, on {', '.join(machine.name for machine in machines)}."
    )
    return every.loc[:, order], _layout(frames[roofline.LLAMA, machine], value, rows, caption)


def _layout(frame: pd.DataFrame, value: str, rows: list[str], caption: str) -> tables.Layout:
    """Block sizes as columns, as the paper has them."""
    blocks = sorted(set(frame["block_size"]))
    lines, groups = [], []
    for key, part in frame.groupby(rows, sort=True):
        by_block = dict(zip(part["block_size"], part[value], strict=True))
        names = [str(number) for number in key]  # type: ignore[union-attr]
        lines.append([*names, *(f"{by_block[block]:.3f}" for block in blocks)])
    size = len(set(frame["kv_cache_length"]))
    groups = [size] * (len(lines) // size)
    header = [*(NAMES[name] for name in rows), *(f"k = {block}" for block in blocks)]
    return tables.Layout(header, lines, caption, left=len(rows), groups=groups)


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: the reported cells (and a measured machine) -> tables 3 and 4, printed and corrected."""
    parser = command.parser(__doc__, experiment=False, reported="folder of the paper's numbers, experiments/reported")
    parser.add_argument(
        "--machine", type=Path, help="CSV of `python -m sbd.roofline`: this machine, added to the presets"
    )
    options = parser.parse_args(arguments)
    machines = [*MACHINES, *(roofline.read_hardware(options.machine) if options.machine else [])]
    paths = []
    for name in TABLES:
        paths += tables.write(options.output, name, *printed(name, options.reported))
        paths += tables.write(options.output, f"{name}_corrected", *corrected(name, machines))
    return paths


if __name__ == "__main__":
    command.run(main)
