"""Models and tokenizers that cannot be used are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbd import data, modeling
from sbd.errors import UserError
from tests.conftest import random_model


def test_a_tokenizer_without_mask_token_is_refused(tokenizer, tmp_path: Path) -> None:
    model = random_model("llama", tokenizer)
    model.save_pretrained(tmp_path)
    bare = data.train_tokenizer(["a b c"], 300)
    bare.mask_token = None
    bare.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="no mask token"):
        modeling.load(tmp_path, device="cpu")


@pytest.mark.parametrize(("role", "message"), [("pad", "also the pad token"), ("eos", "also the eos token")])
def test_a_mask_token_with_another_role_is_refused(tokenizer, role: str, message: str) -> None:
    import copy

    other = copy.deepcopy(tokenizer)
    other.mask_token = getattr(tokenizer, f"{role}_token")
    with pytest.raises(UserError, match=message):
        random_model("llama", other)


def test_an_unknown_architecture_and_a_folder_without_model_are_named(tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'gpt' is unknown; use one of"):
        modeling.create("gpt", {}, tokenizer, 0)
    with pytest.raises(UserError, match="cannot open a model"):
        modeling.load(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"the folder has no config\.json"):
        modeling.load(tmp_path)


def test_a_checkpoint_that_is_cut_off_or_of_another_shape_is_named(tokenizer, tmp_path: Path) -> None:
    """Of what is missing in the weights, transformers would make random numbers."""
    random_model("llama", tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    modeling.load(tmp_path)
    said, whole = json.loads(config.read_text()), weights.read_bytes()
    config.write_text(json.dumps({**said, "num_hidden_layers": said["num_hidden_layers"] + 1}))
    with pytest.raises(UserError, match=r"lacks weights \(model.layers.*\); copy it again"):
        modeling.load(tmp_path)
    config.write_text(json.dumps({**said, "vocab_size": said["vocab_size"] + 1}))
    with pytest.raises(UserError, match="cannot open a model"):
        modeling.load(tmp_path)
    config.write_text(json.dumps(said))
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cannot open a model at .*header"):
        modeling.load(tmp_path)
