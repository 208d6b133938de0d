import csv

import pytest

from sbd.decoding import Autoregressive, SelfSpeculative, SetBlock, generate
from sbd.decoding.engine import Engine
from sbd.errors import UserError
from sbd.samplers import EntropyBound
from sbd.speed import measure, predicted_gain, write_csv
from tests.decoding_helpers import EOS, prompts, tiny_model


def test_rows_hold_what_was_decoded(tmp_path):
    model, rows = tiny_model(), prompts([4, 6, 5])
    decoders = {"sbd": SetBlock(4, EntropyBound(0.8)), "spec": SelfSpeculative(4, 2)}
    methods = Engine.forward, Engine.logits
    table = measure(model, rows, decoders, batch_sizes=(1, 2), max_new_tokens=10, eos_token_id=EOS, repeats=1)
    assert methods == (Engine.forward, Engine.logits)
    names = ["autoregressive", "sbd", "spec", "hf_generate"]
    assert [(row["decoder"], row["batch"]) for row in table] == [
        *((name, 1) for name in [*names, "hf_prompt_lookup"]),
        *((name, 2) for name in names),
    ]
    for row in table:
        decoder = {"autoregressive": Autoregressive(), **decoders}.get(row["decoder"])
        if decoder is not None:
            outs = [generate(model, [r], decoder, 10, eos_token_id=EOS) for r in rows]
            assert row["tokens"] == sum(len(out.tokens[0]) for out in outs)
            passes = sum(out.forward_passes[0] for out in outs)
            assert row["tokens_per_forward"] == pytest.approx(row["tokens"] / passes, abs=1e-4)
            assert 0 < row["share_outside_model"] < 1
        assert row["seconds"] > 0
        if row["decoder"] in ("autoregressive", "spec", "hf_generate", "hf_prompt_lookup"):
            assert row["tokens"] == table[0]["tokens"]  # all of them give the greedy text
    assert table[0]["gain_measured"] == 1
    assert table[0]["model_passes"] == table[0]["tokens"] == table[3]["model_passes"]
    write_csv(tmp_path / "speed.csv", table)
    with open(tmp_path / "speed.csv", encoding="utf-8") as handle:
        read = list(csv.DictReader(handle))
    assert [row["decoder"] for row in read] == [row["decoder"] for row in table]


def test_a_block_of_one_is_measured_too():
    decoders = {"one": SetBlock(1), "spec": SelfSpeculative(1), "ntp": Autoregressive()}
    table = measure(tiny_model(), prompts([4]), decoders, [1], max_new_tokens=4, repeats=1, hugging_face=False)
    assert [row["block_size"] for row in table] == [1, 1, 1, 1]
    assert [row["ms_pass_2k"] != "" for row in table] == [False, True, True, False]
    assert table[1]["gain_predicted"] > 0


def test_predicted_gain_is_equation_16():
    assert predicted_gain(4, 16, 1.0, 1.0, 1.0) == 4  # equal pass times: tokens per forward, k / l
    assert predicted_gain(4, 16, 2.0, 3.0, 5.0) == 16 * 2 / (5 + 3 * 3)


def test_bad_input():
    with pytest.raises(UserError, match="prompt"):
        measure(tiny_model(), [], {})
    with pytest.raises(UserError, match="repeats"):
        measure(tiny_model(), [[1]], {}, repeats=0)
