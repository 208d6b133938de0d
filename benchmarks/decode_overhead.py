"""How much of a decoding pass is spent outside the model: our loops and Hugging Face `generate`, side by side.

A random Llama of the size of the tiny scale; text does not matter, so no end token. Prints one line per decoder and
batch: times, the share of them outside the layers and the head of the model, and how many operations of torch a pass
dispatches there (views and conversions included). Usage: python benchmarks/decode_overhead.py [--new 64] [--repeats 5]
"""

import argparse
import statistics
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from sbd.decoding import Autoregressive, Decoder, SelfSpeculative, SetBlock, generate
from sbd.decoding.engine import Engine
from sbd.samplers import EntropyBound
from sbd.speed import Stopwatch


def small_llama() -> Any:
    """0.9 million parameters: 4 layers, hidden 128, 4 heads, 2 key-value heads, FFN 384, vocabulary 512."""
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    model.config.mask_token_id = 3
    model.config.sbd_objective = "sbd"  # so that no decoder warns
    return model


class OperationsOutside(TorchDispatchMode):
    """Counts the operations of torch that are dispatched while no ``Engine.call`` runs."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.inside = 0, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count it."""
        self.count += not self.inside
        return func(*args, **(kwargs or {}))

    def per_pass(self, model: Any, ids: Tensor, decoder: Decoder, new: int) -> float:
        """Of ``new`` more tokens, so that what is done once for a text is not in it; ids: [batch, prompt]."""
        (few, passes), (many, more) = (self._of(model, ids, decoder, length) for length in (new, 2 * new))
        return (many - few) / (more - passes)

    def _of(self, model: Any, ids: Tensor, decoder: Decoder, new: int) -> tuple[int, int]:
        """Operations and passes of a text of ``new`` tokens."""
        plain, self.count = Engine.call, 0

        def call(engine: Engine, *inputs: Any, **named: Any) -> Any:
            self.inside = True
            try:
                return plain(engine, *inputs, **named)
            finally:
                self.inside = False

        Engine.call = call  # type: ignore[method-assign]
        try:
            with self:
                passes = generate(model, ids, decoder, max_new_tokens=new).model_passes
            return self.count, passes
        finally:
            Engine.call = plain  # type: ignore[method-assign]


def main() -> None:
    """Time every decoder in turn, several times over, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    model = small_llama()
    watch = Stopwatch(model.device)
    decoders = {
        "autoregressive": Autoregressive(),
        "set_block 16, gamma 0.1": SetBlock(16, EntropyBound(0.1)),
        "set_block 16, gamma 10": SetBlock(16, EntropyBound(10.0)),
        "self_speculative 8, 2 branches": SelfSpeculative(8, 2),
    }
    for batch in options.batches:
        ids = torch.randint(4, 512, (batch, options.prompt), generator=torch.Generator().manual_seed(1))
        times: dict[str, list[float]] = {}
        shares: dict[str, list[float]] = {}
        passes: dict[str, int] = {}
        operations = {
            name: OperationsOutside().per_pass(model, ids, decoder, options.new) for name, decoder in decoders.items()
        }
        for name, decoder in decoders.items():
            passes[name] = generate(model, ids, decoder, max_new_tokens=options.new).model_passes
        passes["hugging face generate"] = options.new
        theirs = partial(
            model.generate,
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=options.new,
            do_sample=False,
            eos_token_id=None,
            suppress_tokens=[0, 1, 3],
        )
        for _ in range(options.repeats):
            times.setdefault("hugging face generate", []).append(watch.seconds(theirs))
            for name, decoder in decoders.items():
                run = partial(generate, model, ids, decoder, max_new_tokens=options.new)
                outside, total = watch.outside_model(run)
                times.setdefault(name, []).append(total)
                shares.setdefault(name, []).append(outside / total)
        for name, values in times.items():
            share = ""
            if name in shares:
                share = f"{statistics.median(shares[name]):6.1%} outside, {operations[name]:5.1f} operations a pass"
            milliseconds = 1e3 * statistics.median(values)
            print(
                f"batch {batch}  {name:32} {milliseconds:8.1f} ms  {passes[name]:4} passes  "
                f"{milliseconds / passes[name]:6.3f} ms/pass  {share}"
            )


if __name__ == "__main__":
    main()
