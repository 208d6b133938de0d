"""What is wrong or unclear in the paper, each with a check that computes it: ``python -m paper_figures.errata NAME``.

Without a name it writes ``docs/errata.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paper_figures import command
from paper_figures import errata_checks as checks
from sbd.files import write_text


@dataclass(frozen=True)
class Fault:
    """A fault, where it stands, what follows from it here, and the check that shows it."""

    title: str
    where: str
    text: str
    check: Callable[[], str]


FAULTS = {
    "labels": Fault(
        "The training code removes the labels of the masked tokens",
        "code block 7, p. 15",
        "The array that is true where a token is masked also sets the label to be ignored. Equation 14 and figure 8 "
        "have the loss on the masked tokens and nowhere else, as here.",
        checks.labels,
    ),
    "label-shapes": Fault(
        "The line that removes labels cannot be executed",
        "code block 7, p. 15",
        "It drops the last column of labels that have as many columns as the mask.",
        checks.label_shapes,
    ),
    "block-length": Fault(
        "The block size drawn in the code can be 0 and never the maximum",
        "code block 7, p. 15",
        "The text draws from 2 to 16, both included, as here.",
        checks.block_length,
    ),
    "mask-length": Fault(
        "The training mask is asked for with half of its length",
        "code blocks 7 and 9, p. 15-16",
        "The input is twice the sequence, while the function halves the length that it is given.",
        checks.mask_length,
    ),
    "partial-block": Fault(
        "The code trains a last block that is not whole, which equation 14 leaves out",
        "code block 7, p. 15; equation 14, p. 5",
        "The sum of the equation ends with the last whole block of the sequence. Here blocks are those of each "
        "document, and the last one is trained too.",
        checks.partial_block,
    ),
    "inference-mask": Fault(
        "The function of the mask of inference uses a length that it is not given",
        "code block 10, p. 17",
        "It is defined nowhere in the listing.",
        checks.inference_mask,
    ),
    "factor-rule": Fault(
        "The factor rule is probably printed with the confidence where its complement is meant",
        "appendix B.1, p. 19",
        "An inference: as printed, the surer a model is, the fewer tokens it reveals, which the check shows; that the "
        "authors ran another rule than they print is not shown. The rule of Fast-dLLM, which the paper refers to, has "
        "one minus the confidence, and that one is used here.",
        checks.factor_rule,
    ),
    "headline": Fault(
        "Three to five times fewer passes holds for the reasoning tasks",
        "abstract and table 1, p. 6",
        "The chat tasks stay below three at the setting that keeps the accuracy.",
        checks.headline,
    ),
    "monotone": Fault(
        "One speed-up falls when gamma rises",
        "table 1, p. 6",
        "The paper does not comment on it; longer answers at the larger gamma would explain it.",
        checks.monotone,
    ),
    "rounding": Fault(
        "Scores are rounded in some cells and cut in others",
        "table 1, p. 6",
        "Eight of thirty problems are 26.67%, printed as 26.6.",
        checks.rounding,
    ),
    "mbpp-count": Fault(
        "The number of MBPP problems is not stated and is not 500",
        "table 1, p. 6",
        "The scores fit 378, the size of MBPP+, or 974; that is no proof.",
        checks.mbpp_count,
    ),
    "figure1-points": Fault(
        "Figure 1 shows other points than table 1",
        "figure 1, p. 1",
        "The values of gamma of its points are not stated. All of them fit 454 problems of LiveCodeBench.",
        checks.figure1_points,
    ),
    "figure1-stars": Fault(
        "The stars of figure 1 are of different rows of table 1",
        "figure 1, p. 1; table 1, p. 6",
        "Both stand for next-token decoding. By their heights one is the model trained with SBD and the other the "
        "one trained with next-token prediction alone, so the dots are compared with different baselines.",
        checks.figure1_stars,
    ),
    "mbpp-panel": Fault(
        "The MBPP panel of figures 5, 12 and 13 is the GSM8K panel again",
        "figure 5, p. 7; figures 12 and 13, p. 19",
        "That all points of the two panels are equal was seen when both were read off the drawings; the reported "
        "numbers hold one of them. What the check shows is that many of these scores cannot come from 500 or 378 "
        "problems, the sizes of MBPP and MBPP+, while all fit the 1,319 of GSM8K (with so many, "
        "every tenth of a percent does).",
        checks.mbpp_panel,
    ),
    "canvas": Fault(
        "Figure 5 counts passes over the whole canvas, table 1 to the end of the answer",
        "figure 5, p. 7",
        "Speed-ups of the two cannot be compared. Here passes are always counted to the end of the answer.",
        checks.canvas,
    ),
    "proxy": Fault(
        "Entropy is the better order only where many passes are spent",
        "figures 12 and 13, p. 19",
        "With few passes, confidence is ahead on both benchmarks, against the remark in the text.",
        checks.proxy,
    ),
    "roofline-sizes": Fault(
        "The roofline is computed with wrong layer sizes",
        "figure 11, p. 18; tables 3 and 4",
        "This is why the length of the KV cache hardly matters in the tables. With true sizes a block of 16 still "
        "costs a few percent; a block of 64, and the first pass of a block of 32, cost much more over a long cache. "
        "The check mends the sizes alone; the corrected tables here also have the sizes of Llama and Qwen, the "
        "bandwidth of the data sheet and the LM head.",
        checks.roofline_sizes,
    ),
    "bandwidth": Fault(
        "The bandwidth is a tenth too high",
        "figure 6, p. 8",
        "Terabytes of the data sheet were taken for tebibytes.",
        checks.bandwidth,
    ),
    "lm-head": Fault(
        "The roofline leaves out the LM head",
        "figure 11, p. 18",
        "It runs over every masked position. The entropies and the launch of kernels are left out too; neither is "
        "computed here.",
        checks.lm_head,
    ),
}

READING = """## Seen by reading alone
No command can show these: they are read on the pages named.

- The mask rate is tau in algorithm 1 (p. 4), eta in equation 13 (p. 5) and one minus `time` in code block 7 (p. 15).
- The learning rate is 3e-4 for fine-tuning the 8B models (p. 5) and 1e-5 for the 3B ones (p. 6), without a comment.
"""


def page() -> str:
    """The text of docs/errata.md."""
    parts = [
        "# Faults of the paper, with the check that shows each",
        "Set Block Decoding, arXiv 2509.04185v1. Generated by `python -m paper_figures.errata`; each command prints "
        "the line below it. The paper's numbers are read from `experiments/reported/`.",
    ]
    for name, fault in FAULTS.items():
        parts.append(
            f"## {fault.title}\n{fault.where[0].upper()}{fault.where[1:]}. {fault.text}\n"
            f"```\n$ python -m paper_figures.errata {name}\n{fault.check()}\n```"
        )
    return "\n\n".join([*parts, READING])


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: print a check, or write the page."""
    parser = argparse.ArgumentParser(description="Faults of the paper and their checks.")
    parser.add_argument("name", nargs="?", choices=list(FAULTS), help="print this check; without it, write the page")
    parser.add_argument("--output", type=Path, default=Path("docs/errata.md"))
    options = parser.parse_args(arguments)
    if options.name:
        print(FAULTS[options.name].check())
        return []
    write_text(options.output, page())
    return [options.output]


if __name__ == "__main__":
    command.run(main)
