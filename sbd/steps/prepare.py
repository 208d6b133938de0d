"""``prepare``: a tokenizer, and the packed rows of the training and validation problems of all sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sbd import data, hub
from sbd.config import Experiment, TokenizerConfig
from sbd.errors import UserError
from sbd.steps import streams


def run(experiment: Experiment, model: str | None = None, folder: str | Path = "data", workers: int = 1) -> None:
    """Write the rows of training and validation, the training manifest last: it says that both are complete.

    model: one with a tokenizer of its own, or None for the experiment's. folder: where relative files of streams lie.
    """
    config, pins = (
        experiment.tokenizer if model is None else experiment.tokenizer_of(model),
        experiment.revisions_folder,
    )
    hub.check_models(experiment)
    if experiment.data.streamed:
        streams.run(experiment, load_tokenizer(config, pins), model, folder, workers)
        return
    training = _files(experiment, "train")
    tokenizer = load_tokenizer(config, pins, training)
    for split, files in (("validation", _files(experiment, "validation")), ("train", training)):
        if not files:
            continue
        manifest = data.prepare(
            files,
            experiment.data_folder(split, model),
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
    """The problems of every source that is trained on and has any in this split."""
    return [
        experiment.source_file(name, split)
        for name, source in experiment.data.sources.items()
        if source.train and getattr(source, split)
    ]


def load_tokenizer(config: TokenizerConfig, pins: Path, training: Sequence[Path] = ()) -> PreTrainedTokenizerBase:
    """Train the tokenizer, or load it and give it the tokens and the chat template that the experiment names."""
    if config.vocab_size is not None:
        if not training:
            raise UserError("a tokenizer cannot be trained on streamed sources; name one as tokenizer.path")
        texts = (text for path in training for p in data.read_problems(path) for text in (p["prompt"], p["solution"]))
        return _with_template(data.train_tokenizer(texts, config.vocab_size, config.split_digits), config)
    assert config.path is not None, "the schema allows no tokenizer without both"
    commit = hub.model_commit(config.path, config.revision, pins)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(config.path, revision=commit or "main")
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"cannot open the tokenizer {config.path}: {first}") from None
    if config.new_tokens:
        tokenizer.add_special_tokens({"additional_special_tokens": config.new_tokens})
    for role in ("mask_token", "eos_token"):
        token = getattr(config, role)
        if token is None:
            continue
        if token not in tokenizer.get_vocab():
            raise UserError(
                f"tokenizer.{role}: {token!r} is no token of {config.path}; name a reserved one, "
                "or add it to tokenizer.new_tokens"
            )
        setattr(tokenizer, role, token)
    if tokenizer.mask_token_id is None:
        raise UserError(
            f"the tokenizer {config.path} has no mask token; name one of its reserved tokens as tokenizer.mask_token"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding is marked apart; its token is never looked at
    return _with_template(tokenizer, config)


def _with_template(tokenizer: PreTrainedTokenizerBase, config: TokenizerConfig) -> PreTrainedTokenizerBase:
    if config.chat_template == "own":
        if not tokenizer.chat_template:
            raise UserError(f"the tokenizer {config.path} has no chat template; name a Jinja file as chat_template")
    elif config.chat_template is not None:
        try:
            tokenizer.chat_template = Path(config.chat_template).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"chat_template: {config.chat_template} cannot be read ({error.strerror})") from None
    return tokenizer
