"""Block size and masked positions as pure functions of (seed, step, sample).

Nothing here reads a global generator, so that one process or eight, a run that was stopped and resumed or one that was
not, mask the very same tokens. A sample is a document; its number is its place in the prepared data.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sbd.errors import UserError

MaskRate = Literal["sequence", "block"]

_BLOCK_SIZE_STREAM = 0
_MASK_STREAM = 1
_ANCHOR_STREAM = 2


def _generator(stream: int, *key: int) -> np.random.Generator:
    # Philox is counter based: cheap to key, and its streams do not overlap for distinct keys.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([stream, *key])))


def block_size_at(seed: int, step: int, low: int, high: int) -> int:
    """Block size of a training step, uniform over the integers low..high (paper p. 5: 2..16), shared by the batch."""
    if not 1 <= low <= high:
        raise UserError(f"block sizes [{low}, {high}]: need 1 <= low <= high")
    return int(_generator(_BLOCK_SIZE_STREAM, seed, step).integers(low, high + 1))


def mask_positions(seed: int, step: int, sample: int, blocks: int, block_size: int, rate: MaskRate) -> np.ndarray:
    """Which slots of a document's blocks are masked: boolean ``[blocks, block_size]`` (paper Alg. 1 and eq. 13).

    A mask rate is drawn uniformly from (0, 1), once for the sequence as in the paper or once for each block; every slot
    is then masked with that probability, independently of the others.
    """
    random = _generator(_MASK_STREAM, seed, step, sample)
    rates = random.random(1 if rate == "sequence" else blocks)
    return random.random((blocks, block_size)) < rates[:, None]


def anchor_positions(seed: int, step: int, sample: int, low: int, high: int, count: int) -> np.ndarray:
    """``count`` distinct block anchors in low..high-1, sorted (SDLM: blocks start at random positions)."""
    random = _generator(_ANCHOR_STREAM, seed, step, sample)
    return np.sort(random.choice(np.arange(low, high), size=min(count, high - low), replace=False))
