"""What can be typed: the verbs, their options and what values these take."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from sbd.cli import verbs
from sbd.config import Experiment

DTYPES = ("auto", "float32", "bfloat16")
EXECUTIONS = ("eager", "compile", "graphs")

Handler = Callable[[Experiment, argparse.Namespace], int | None]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """All verbs with their options; each sets ``handler`` to the function of :mod:`sbd.cli.verbs` that runs it."""
    parser = _Parser(prog="sbd", description="Set Block Decoding: the steps of an experiment, one verb each.")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)

    def verb(name: str, handler: Handler, help: str) -> argparse.ArgumentParser:
        added = subparsers.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        added.add_argument(
            "--experiment",
            default="experiments/tiny.yaml",
            metavar="FILE",
            help="what to run; paper is short for experiments/paper.yaml (default: %(default)s)",
        )
        added.set_defaults(handler=handler)
        return added

    verb("check", verbs.check, "check an experiment file and list what it would run")
    verb("pin", verbs.pin, "say which commits the hub's data sets and models are at, for the experiment file")
    problems = verb("problems", verbs.problems, "write the problems of a source: train, validation and test")
    problems.add_argument("--source", required=True, help="a source of the experiment")
    prepare = verb("prepare", verbs.prepare, "train or load the tokenizer and pack the training and validation rows")
    prepare.add_argument("--model", help="a model with a tokenizer of its own (default: the experiment's tokenizer)")
    prepare.add_argument("--threads", type=_positive, default=1, metavar="N", help="processes that tokenise streams")
    for added in (problems, prepare):
        added.add_argument(
            "--data", default="data", metavar="FOLDER", help="where files of local sources lie (default: %(default)s)"
        )
    train = verb("train", verbs.train, "train a run of a model, or go on where it was stopped")
    evaluate = verb(
        "evaluate", verbs.evaluate, "generate and score benchmarks with a trained run, with every decoder named"
    )
    masked = verb(
        "masked-loss", verbs.masked_loss, "measure the masked-token loss by slot of the block and by mask rate"
    )
    score = verb("score", verbs.score, "score a benchmark from its saved generations (for those that are scored apart)")
    for added in (train, evaluate, masked, score):
        added.add_argument("--model", required=True, help="a model of the experiment")
        added.add_argument("--run", required=True, help="a run of the experiment")
        added.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: as torch decides)")
    train.add_argument(
        "--adopt",
        action="store_true",
        default=os.environ.get("SBD_ADOPT", "").lower() in ("1", "true", "yes"),  # as `adopt` of the workflow
        help="go on from a saved state of other settings too, and past what stopped it (or SBD_ADOPT=1)",
    )
    for option in ("decoder", "benchmark"):
        score.add_argument(f"--{option}", required=True, help=f"a {option} of the experiment")
        evaluate.add_argument(f"--{option}", required=True, nargs="+", metavar=option.upper(), help="one or several")
    verb("collect", verbs.collect, "gather the records of all evaluations, and all held-out losses, in a CSV file each")
    tune = verb("tune", verbs.tune, "pick the largest gamma that costs no more accuracy than you allow")
    tune.add_argument("--model", help="a model of the experiment")
    tune.add_argument("--run", help="a run of the experiment")
    tune.add_argument("--checkpoint", metavar="FOLDER", help="tune a folder or hub id, in place of --model and --run")
    tune.add_argument("--benchmark", required=True, help="a benchmark: its task, and its source's validation problems")
    tune.add_argument(
        "--problems", type=Path, metavar="FILE.jsonl", help="validation problems of your own for the task"
    )
    tune.add_argument("--baseline-run", metavar="RUN", help="what to compare with (default: the run itself)")
    tune.add_argument("--baseline-checkpoint", metavar="FOLDER", help="the same for --checkpoint")
    tune.add_argument("--output", type=Path, metavar="FOLDER", help="default: tune/MODEL/RUN of the results")
    grid = [0.01, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.5]
    tune.add_argument("--gamma", nargs="+", type=_not_negative, default=grid, metavar="G", help="default: %(default)s")
    tune.add_argument("--block-size", nargs="+", type=_positive, default=[16], metavar="K", help="default: 16")
    tune.add_argument("--margin", type=_not_negative, default=2.0, metavar="POINTS", help="default: %(default)s")
    tune.add_argument("--confidence", type=_share, default=0.95, metavar="C", help="default: %(default)s")
    tune.add_argument("--limit", type=_positive, metavar="N", help="use the first N problems (default: all)")
    plan = verb(
        "plan", verbs.plan, "reckon memory, time and cost of every job before it is run, and refuse what cannot fit"
    )
    plan.add_argument(
        "--gpu", choices=["H100", "H200", "B200"], help="default of this and the others: the experiment's"
    )
    plan.add_argument("--memory-gib", type=float, metavar="N", help="of a GPU")
    plan.add_argument("--mfu", type=float, metavar="SHARE", help="share of the peak that is reached, 0 to 1")
    plan.add_argument("--price", type=float, metavar="N", help="of an hour of one GPU")
    generate = verb("generate", verbs.generate, "continue prompts with any decoder of the experiment, and show how")
    generate.add_argument("prompt", nargs="+", help="the text to continue, or several")
    generate.add_argument("--model", required=True, metavar="FOLDER", help="a checkpoint folder or hub id")
    generate.add_argument("--decoder", default="gamma_0.1", help="a decoder of the experiment (default: %(default)s)")
    generate.add_argument("--max-new-tokens", type=_positive, default=128, metavar="N", help="default: %(default)s")
    generate.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: %(default)s)")
    generate.add_argument("--top-k", type=_positive, metavar="N", help="sample among the N likeliest tokens only")
    generate.add_argument("--top-p", type=float, metavar="P", help="sample among the fewest tokens that hold P only")
    generate.add_argument("--samples", type=_positive, default=1, metavar="N", help="of each prompt (default: 1)")
    generate.add_argument("--seed", type=int, default=0, help="of sampling (default: %(default)s)")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end at this text; repeatable")
    generate.add_argument("--stream", action="store_true", help="print the text as it becomes final")
    generate.add_argument("--dtype", choices=DTYPES, default="auto", help="of the weights (default: the checkpoint's)")
    generate.add_argument("--trace", type=Path, metavar="FILE.html", help="write a page that shows every pass")
    traces = verb(
        "traces", verbs.traces, "write the page of `generate --trace` for each decoder, as the experiment asks"
    )
    speed = verb("speed", verbs.speed, "measure decoders side by side: tokens per second, time per pass, gain")
    speed.add_argument("--model", help="a model of the experiment")
    speed.add_argument("--run", help="a run of the experiment (default: as `speed` in the experiment says)")
    speed.add_argument(
        "--checkpoint", metavar="FOLDER", help="measure a folder or hub id, in place of --model and --run"
    )
    speed.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE.jsonl",
        help="problems of your own, a `prompt` and `solution` a line",
    )
    speed.add_argument("--decoder", nargs="+", metavar="NAME", help="decoders of the experiment (default: as it says)")
    speed.add_argument("--batch-size", nargs="+", type=_positive, metavar="N", help="default: as it says, or 1 8")
    speed.add_argument("--problems", type=_positive, metavar="N", help="default: as it says, or 16")
    speed.add_argument("--repeats", type=_positive, metavar="N", help="rounds (default: as it says, or 3)")
    speed.add_argument("--dtype", choices=DTYPES, help="of the weights (default: as it says, or the checkpoint's)")
    speed.add_argument(
        "--clock", choices=("wall", "cpu"), help="cpu: the processor's time (default: as it says, or wall)"
    )
    speed.add_argument(
        "--in-step", action="store_true", help="a batch is one problem in equal rows, as equation 16 takes for granted"
    )
    speed.add_argument(
        "--output",
        type=Path,
        metavar="FILE.csv",
        help="default: speed/MODEL/RUN.csv of the results",
    )
    speed.add_argument("--figure", type=Path, metavar="FOLDER", help="draw the figure and the table of it there")
    lossless = verb(
        "lossless", verbs.lossless, "compare self-speculative with autoregressive decoding, token for token"
    )
    lossless.add_argument("--model", required=True, help="a model of the experiment")
    lossless.add_argument("--run", required=True, help="a run of the experiment")
    lossless.add_argument("--decoder", default="self_speculative", help="default: %(default)s")
    lossless.add_argument("--batch-size", nargs="+", type=_positive, default=[1, 8], metavar="N", help="default: 1 8")
    lossless.add_argument(
        "--problems", type=_positive, default=500, metavar="N", help="of every benchmark (default: %(default)s)"
    )
    lossless.add_argument("--dtype", choices=DTYPES, default="auto", help="of the weights (default: the checkpoint's)")
    lossless.add_argument(
        "--output", type=Path, metavar="FILE.csv", help="default: lossless/MODEL/RUN.csv of the results"
    )
    for added in (generate, speed):
        added.add_argument("--execution", choices=EXECUTIONS, default="eager", help="of passes (default: %(default)s)")
    for added in (generate, traces, speed, lossless, tune):
        added.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: as torch decides)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


_positive.__name__ = "whole number"  # what argparse calls a value that is none


def _not_negative(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {number:g}")
    return number


_not_negative.__name__ = "number"


def _share(text: str) -> float:
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, not be {number:g}")
    return number


_share.__name__ = "number"
