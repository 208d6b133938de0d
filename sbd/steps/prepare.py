"""``prepare``: a tokenizer, and the packed rows of the training and validation problems of all sources."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sbd import data
from sbd.config import Experiment, TokenizerConfig
from sbd.errors import UserError


def run(experiment: Experiment) -> None:
    """Write ``data/validation`` and ``data/train``, the training manifest last: it says that both are complete."""
    training = _files(experiment, "train")
    tokenizer = _tokenizer(experiment.tokenizer, training)
    for split, files in (("validation", _files(experiment, "validation")), ("train", training)):
        if not files:
            continue
        manifest = data.prepare(
            files,
            experiment.data_folder(split),
            tokenizer,
            experiment.data.sequence_length,
            experiment.seed,
            experiment.data.too_long,
        )
        print(
            f"{split}: {manifest['documents']:,} documents in {manifest['rows']:,} rows of "
            f"{manifest['sequence_length']} tokens, {manifest['padding_share']:.1%} of them padding"
            + (f"; {manifest['dropped_too_long']:,} too long and dropped" if manifest["dropped_too_long"] else "")
        )


def _files(experiment: Experiment, split: str) -> list[Path]:
    """The problems of every source that has any in this split."""
    return [
        experiment.source_file(name, split)
        for name, source in experiment.data.sources.items()
        if getattr(source, split)
    ]


def _tokenizer(config: TokenizerConfig, training: list[Path]) -> PreTrainedTokenizerBase:
    if config.vocab_size is not None:
        texts = (text for path in training for p in data.read_problems(path) for text in (p["prompt"], p["solution"]))
        return data.train_tokenizer(texts, config.vocab_size, config.split_digits)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(config.path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot open the tokenizer {config.path}: {str(error).strip().splitlines()[0]}") from None
    if config.mask_token is not None:
        if config.mask_token not in tokenizer.get_vocab():
            raise UserError(
                f"tokenizer.mask_token: {config.mask_token!r} is no token of {config.path}; name a reserved one"
            )
        tokenizer.mask_token = config.mask_token
    if tokenizer.mask_token_id is None:
        raise UserError(
            f"the tokenizer {config.path} has no mask token; name one of its reserved tokens as tokenizer.mask_token"
        )
    return tokenizer
