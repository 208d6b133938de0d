"""What decoding sees is what training saw: the logits of a decoded block equal those of the training layout."""

from __future__ import annotations

import numpy as np
import torch

import sbd
from sbd.attention import CLEAN, Layout, dense_mask


class Recorder:
    """A sampler that keeps the logits it is given, and reveals all that is masked."""

    def __init__(self) -> None:
        self.logits: list[torch.Tensor] = []

    def __call__(self, logits: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        self.logits.append(logits.clone())
        return masked


def test_logits_of_decoded_blocks_equal_those_of_the_training_layout(model, tokenizer) -> None:
    block_size, blocks = 5, 3
    prompt = torch.from_numpy(np.random.default_rng(0).integers(4, 300, (1, 9)))
    recorder = Recorder()
    decoder = sbd.SetBlock(block_size=block_size, sampler=recorder)
    out = sbd.generate(model, prompt, decoder=decoder, max_new_tokens=block_size * blocks, eos_token_id=None)
    tokens = torch.cat([prompt[0], torch.tensor(out.tokens[0])])
    length, first = len(tokens), prompt.shape[1]

    # All blocks in one pass over [clean | noisy], as in training with every slot masked.
    noisy = torch.arange(first, length)
    position = torch.cat([torch.arange(length), noisy])[None]
    start = torch.cat([torch.full((length,), CLEAN), first + (noisy - first) // block_size * block_size])[None]
    layout = Layout(torch.zeros_like(position), position, start)
    ids = torch.cat([tokens, torch.full_like(noisy, tokenizer.mask_token_id)])[None]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=dense_mask(layout), position_ids=position).logits[0, length:]

    decoded = torch.cat([seen[0] for seen in recorder.logits[1:]])  # the first are made up: a sampler is tried once
    assert len(decoded) == blocks * block_size
    allowed = decoded.isfinite()  # the decoder rules out tokens that are never text
    assert allowed.sum(-1).min() >= len(tokenizer) - 3
    torch.testing.assert_close(decoded[allowed], logits[allowed], rtol=1e-4, atol=1e-4)
