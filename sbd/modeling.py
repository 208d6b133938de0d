"""Create or load a causal language model with a mask token that is safe to train and decode with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from sbd.errors import UserError

ARCHITECTURES: dict[str, tuple[type, type]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def create(architecture: str, shape: dict[str, Any], tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """A randomly initialised model of ``architecture`` whose vocabulary is that of ``tokenizer``.

    ``shape`` holds keyword arguments of the Hugging Face configuration class (hidden_size, num_hidden_layers, ...).
    The same seed gives the same weights.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"model architecture {architecture!r} is unknown; use one of {sorted(ARCHITECTURES)}")
    config_class, model_class = ARCHITECTURES[architecture]
    config = config_class(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **shape,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    return attach_mask_token(model, tokenizer)


def attach_mask_token(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Check the mask token of ``tokenizer`` against ``model`` and write its id into the model's configuration."""
    mask: Any = tokenizer.mask_token_id
    if mask is None:
        raise UserError(
            "the tokenizer has no mask token; train or prepare the model with `python -m sbd` so that it gets one"
        )
    embedding: Any = model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    if not 0 <= mask < rows:
        raise UserError(
            f"mask token id {mask} is outside the embedding of {rows} rows; resize it or choose a reserved id"
        )
    for role in ("pad", "eos", "bos"):
        if mask == getattr(tokenizer, f"{role}_token_id"):
            raise UserError(f"the mask token (id {mask}) is also the {role} token; choose an id of its own")
    model.config.mask_token_id = mask
    return model


DTYPES = {"auto": None, "float32": torch.float32, "bfloat16": torch.bfloat16}
"""Of weights, as the command line names them; "auto" is that of the checkpoint."""


def load(
    path: str | Path, dtype: torch.dtype | None = None, device: str = "auto"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Open a Hugging Face folder or hub id for decoding.

    ``dtype`` None keeps the dtype of the checkpoint; ``device`` "auto" takes a GPU if there is one.
    Raises UserError when the folder is no checkpoint or has no mask token.
    """
    path = str(path)
    if Path(path).is_dir() and not (Path(path) / "config.json").is_file():
        raise UserError(f"cannot open a model at {path}: the folder has no config.json; name that of a checkpoint")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        opened: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype or "auto", attn_implementation="sdpa", output_loading_info=True
        )
        model, found = opened
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # the last two of weights
        said = " ".join(str(error).split())[:300]
        where = "" if Path(path).is_dir() else "there is no such folder, and as a hub id: "
        raise UserError(f"cannot open a model at {path}: {where}{said}") from error
    if missing := sorted(found["missing_keys"]):
        raise UserError(f"the model at {path} lacks weights ({missing[0]} and {len(missing) - 1} more); copy it again")
    attach_mask_token(model, tokenizer)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval(), tokenizer  # type: ignore[arg-type]
