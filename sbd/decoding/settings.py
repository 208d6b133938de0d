"""The decoders and their settings. Each is checked when it is made, so that no pass runs with a wrong one."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

from sbd.errors import UserError
from sbd.integers import integer
from sbd.samplers import EntropyBound, Sampler


def _block_size(decoder: str, value: object) -> int:
    size = integer(value, 1)
    if size is None:
        raise UserError(f"block_size of {decoder} must be an integer of 1 or more, not {value!r}")
    return size


def _check_choice(decoder: str, name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"{name} of {decoder} must be one of {', '.join(allowed)}, not {value!r}")


@dataclass(frozen=True)
class Autoregressive:
    """Next-token prediction, one token per pass; the prefill is the pass of the first token."""

    trained_by = ("ntp", "sbd")


@dataclass(frozen=True)
class SetBlock:
    """Set Block Decoding (algorithm 3 of the paper): blocks of masks, revealed in any order.

    block_size: masks per block, or (low, high), both included, to draw the size of each block from (seeded).
    sampler: which positions to reveal in a pass.
    first_token: "masked" is the paper's way. "next_token" lets the next-token prediction of the last finished token,
        which the first pass of a block computes anyway, decide the first position of the block in that pass.
    commit: "fused" lets the first pass of a block also carry the finished previous block; "separate" spends a pass on
    it.
    """

    block_size: int | tuple[int, int] = 16
    sampler: Sampler = EntropyBound(0.1)  # noqa: RUF009 - frozen, so it can be shared
    first_token: Literal["masked", "next_token"] = "masked"
    commit: Literal["fused", "separate"] = "fused"

    trained_by = ("sbd",)

    def __post_init__(self) -> None:
        if isinstance(self.block_size, (tuple, list)):
            if len(self.block_size) != 2:
                raise UserError(
                    f"block_size of SetBlock must be an integer or a pair (low, high), not {self.block_size!r}"
                )
            low, high = (_block_size("SetBlock", bound) for bound in self.block_size)
            if low > high:
                raise UserError(f"block_size of SetBlock: the low end of {(low, high)} is above the high end")
            object.__setattr__(self, "block_size", (low, high))
        else:
            object.__setattr__(self, "block_size", _block_size("SetBlock", self.block_size))
        if not callable(self.sampler) or isinstance(self.sampler, type):
            raise UserError(f"sampler of SetBlock must be callable, like EntropyBound(gamma=0.1), not {self.sampler!r}")
        _check_choice("SetBlock", "first_token", self.first_token, ("masked", "next_token"))
        _check_choice("SetBlock", "commit", self.commit, ("fused", "separate"))

    @property
    def sizes(self) -> tuple[int, int]:
        """Smallest and largest block size."""
        return self.block_size if isinstance(self.block_size, tuple) else (self.block_size, self.block_size)


@dataclass(frozen=True)
class LongestPrefix:
    """Longest-prefix decoding of SDLM (arXiv 2509.24007), for a model trained with its objective.

    A block is the last known token and ``block_size`` - 1 masks; position j predicts the token after its own. The
    longest prefix that passes the test is kept (at least one token) and the next block starts at its last token.
    confidence: "probability" of the chosen token, or "entropy": 1 - H / log(vocabulary).
    rule: "each" keeps while every confidence is above the threshold (SDLM's released code); "product" while the running
        product is at least the threshold (its equation 7).
    """

    block_size: int = 4
    threshold: float = 0.98
    confidence: Literal["probability", "entropy"] = "probability"
    rule: Literal["each", "product"] = "each"

    trained_by = ("sdlm",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_size", _block_size("LongestPrefix", self.block_size))
        if not isinstance(self.threshold, Real) or not 0 <= self.threshold <= 1:
            raise UserError(f"threshold of LongestPrefix must be a number from 0 to 1, not {self.threshold!r}")
        _check_choice("LongestPrefix", "confidence", self.confidence, ("probability", "entropy"))
        _check_choice("LongestPrefix", "rule", self.rule, ("each", "product"))


@dataclass(frozen=True)
class SelfSpeculative:
    """The masked prediction drafts, the next-token prediction of the same weights verifies: autoregressive text, fewer
    passes.

    A pass carries a token that is certain and up to ``block_size`` - 1 drafted ones, causal, and behind them
    ``branches`` groups of ``block_size`` masks, each drafting for one number of accepted tokens. ``branches`` (by
    default 2, or 1 for a block of 1) equal to ``block_size`` is the full tree, where every pass has drafts for whatever
    is accepted; fewer keep the likeliest numbers and save time per pass; 0 drafts and verifies in turns. A pass whose
    branch was not laid is followed by one that only drafts. The prefill drafts as well, unless it goes through the
    model's own forward, as that of any model but plain Llama and Qwen3 does.

    The rule is exact; arithmetic rounds. A pass over more tokens may sum in another order, so where two tokens are as
    likely but for that, above all in bf16, one may stand in place of the other, as it may at another batch size.
    `python -m sbd lossless` counts such texts.
    """

    block_size: int = 16
    branches: int = None  # type: ignore[assignment]  # an integer once it is made

    trained_by = ("sbd",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_size", _block_size("SelfSpeculative", self.block_size))
        branches = min(2, self.block_size) if self.branches is None else integer(self.branches, 0)
        if branches is None or branches > self.block_size:
            raise UserError(f"branches of SelfSpeculative must be from 0 to block_size, not {self.branches!r}")
        object.__setattr__(self, "branches", branches)


Decoder = Autoregressive | SetBlock | LongestPrefix | SelfSpeculative
