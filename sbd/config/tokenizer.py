"""The tokenizer of an experiment, or of one of its models."""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from sbd.selection import Strict


class TokenizerConfig(Strict):
    """A byte-level BPE trained on the training split (``vocab_size``), or one of the hub or a folder (``path``)."""

    vocab_size: PositiveInt | None = None
    split_digits: bool = False
    path: str | None = None
    revision: str | None = Field(None, description="commit, tag or branch of `path` on the hub; None is main")
    mask_token: str | None = Field(
        None, description="token of `path` that serves as the mask, when it names none itself"
    )
    eos_token: str | None = Field(None, description="token of `path` that ends a document, in place of its own")
    new_tokens: list[str] = Field(
        [], description="special tokens appended to those of `path`; the model needs an embedding row for each"
    )
    chat_template: str | None = Field(
        None, description="Jinja file for conversations, or 'own' for the template that comes with `path`"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizerConfig:
        if (self.vocab_size is None) == (self.path is None):
            raise ValueError("give vocab_size (to train a tokenizer) or path (to load one), not both and not none")
        if self.path is None and (self.mask_token or self.eos_token or self.new_tokens):
            raise ValueError("mask_token, eos_token and new_tokens are of a loaded tokenizer (path)")
        if self.path is None and self.chat_template == "own":
            raise ValueError("a trained tokenizer has no chat template of its own; name a Jinja file")
        return self
