"""Models: architecture and shape, or where a pretrained one is."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from sbd.config.tokenizer import TokenizerConfig
from sbd.selection import Strict


class ModelConfig(Strict):
    """A model to train from scratch (architecture and shape) or a pretrained one (path or hub id, at a revision).

    The shape of a pretrained one is what `plan` reckons with before it is downloaded; a model of another is refused.
    """

    architecture: Literal["llama", "qwen3"] | None = None
    shape: dict[str, Any] = {}
    path: str | None = None
    tokenizer: TokenizerConfig | None = Field(None, description="its own tokenizer, in place of the experiment's")
    revision: str | None = None
    label: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> ModelConfig:
        if (self.architecture is None) == (self.path is None):
            raise ValueError("give architecture and shape (from scratch) or path (pretrained), not both and not none")
        if self.architecture is not None and (unknown := sorted(self.shape.keys() - SHAPE_KEYS)):
            raise ValueError(f"shape: unknown key {unknown[0]!r}; allowed are {', '.join(sorted(SHAPE_KEYS))}")
        for name in (*_SIZES, "vocab_size"):
            size = self.shape.get(name, 1)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"shape: {name} must be a whole number of 1 or more, not {size!r}")
        for name in _NUMBERS:
            if isinstance(self.shape.get(name), bool):
                raise ValueError(f"shape: {name} must be a number; true and false are none")
        if self.architecture is not None:
            self._check_parts()
        return self

    def _check_parts(self) -> None:
        """What Hugging Face would fail on when the model is made."""
        for name, part in (("num_attention_heads", "num_key_value_heads"), ("hidden_size", "num_attention_heads")):
            whole, parts = self.shape.get(name), self.shape.get(part)
            needed = name != "hidden_size" or self.architecture == "llama"
            if needed and whole and parts and whole % parts:
                raise ValueError(f"shape: {name} {whole} is not a multiple of {part} {parts}")


_SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "max_position_embeddings"),
)
_NUMBERS = ("initializer_range", "rms_norm_eps", "attention_dropout")
SHAPE_KEYS = {
    *_SIZES,
    *_NUMBERS,
    *("tie_word_embeddings", "hidden_act", "rope_parameters", "attention_bias"),
}
"""What a shape may say: the keys that the configurations of all architectures have in common."""
