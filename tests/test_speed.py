import csv

import pytest
import torch

from sbd.cache import SlotCache
from sbd.decoding import Autoregressive, SelfSpeculative, SetBlock, fixed, generate
from sbd.decoding.engine import Engine
from sbd.decoding.forward import DirectForward
from sbd.decoding.rows import Rows
from sbd.equation_16 import Passes, counted_gain, predicted_gain
from sbd.errors import UserError
from sbd.samplers import EntropyBound
from sbd.speed import Stopwatch, contenders, measure, table, write_csv
from tests.decoding.helpers import EOS, prompts, tiny_model


def test_rows_hold_what_was_decoded(tmp_path):
    model, rows = tiny_model(), prompts([4, 6, 5, 7])
    decoders = {"sbd": SetBlock(4, EntropyBound(0.8)), "spec": SelfSpeculative(4, 2)}
    method = Engine.call
    table = measure(model, rows, decoders, batch_sizes=(1, 2), max_new_tokens=10, eos_token_id=EOS, repeats=1)
    assert method is Engine.call
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


@pytest.mark.parametrize(
    ("execution", "direct"), [("eager", True), ("eager", False), ("compile", True)], ids=["direct", "theirs", "fixed"]
)
def test_time_outside_the_model_is_all_but_its_layers_and_head(execution, direct, monkeypatch):
    """By a clock that only moves where it is told to: 2 s in layers or head, 3 s in placing keys and in the loop."""
    model, now, spent = tiny_model(), [0.0], {"model": 0, "loop": 0}

    def slow(owner, name, kind, seconds):
        plain = getattr(owner, name)

        def call(*inputs, **named):
            now[0] += seconds
            spent[kind] += seconds
            return plain(*inputs, **named)

        monkeypatch.setattr(owner, name, call)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(fixed, "_compiled", lambda body, buffers: lambda: body(*buffers))
    monkeypatch.setattr(Engine, "direct", direct)
    slow(DirectForward, "_layers", "model", 2)
    slow(torch.nn.Linear, "forward", "model", 2)  # the LM head, or all layers of its own forward
    if execution == "eager":  # else it is part of what is captured
        slow(SlotCache, "place", "loop", 3)
    slow(Rows, "advance", "loop", 3)
    slow(EntropyBound, "scores", "loop", 3)
    slow(EntropyBound, "select_row", "loop", 3)
    rows, decoder = prompts([4, 7]), SetBlock(4, EntropyBound(0.8))

    def run():
        spent.update(model=0, loop=0)
        generate(model, rows, decoder, 10, eos_token_id=EOS, execution=execution)

    outside, whole = Stopwatch(model.device).outside_model(run)
    assert min(spent.values()) > 0
    assert (outside, whole) == pytest.approx((spent["loop"], spent["loop"] + spent["model"]))


def test_equal_rows_stay_in_step():
    """A batch takes the passes of one row, in which as many positions of every row go through the layers."""
    model, rows, decoders = tiny_model(), prompts([4, 6, 5]), {"sbd": SetBlock(4, EntropyBound(0.8))}
    table = measure(model, rows, decoders, (1, 3), 10, EOS, repeats=1, hugging_face=False, in_step=True)
    for alone, batch in zip(table[:2], table[2:], strict=True):
        assert (batch["decoder"], batch["in_step"]) == (alone["decoder"], True)
        assert batch["tokens"] == 3 * alone["tokens"]
        for name in ("model_passes", "tokens_per_forward"):
            assert batch[name] == alone[name]
        assert batch["queries_per_pass"] == pytest.approx(3 * alone["queries_per_pass"], abs=0.02)


@pytest.mark.parametrize(("in_step", "kinds"), [(True, {str}), (False, {torch.Tensor})])
def test_passes_of_one_token_have_the_masks_of_decoding(in_step, kinds, monkeypatch):
    """None for equal rows, one for each row of several prompts: in decoding, and in the passes beside it."""
    seen, plain = set(), Engine.forward

    def forward(engine, tokens, slots, limit, *inputs, **named):
        if tokens.shape[1] == 1 < tokens.shape[0]:
            seen.add(type(limit))
        return plain(engine, tokens, slots, limit, *inputs, **named)

    monkeypatch.setattr(Engine, "forward", forward)
    decoders = {"sbd": SetBlock(4, EntropyBound(0.8))}
    measure(tiny_model(), prompts([4, 6, 5]), decoders, [3], 10, EOS, repeats=1, hugging_face=False, in_step=in_step)
    assert seen == kinds


def test_a_block_of_one_is_measured_too():
    decoders = {"one": SetBlock(1), "spec": SelfSpeculative(1), "ntp": Autoregressive()}
    table = measure(tiny_model(), prompts([4]), decoders, [1], max_new_tokens=4, repeats=1, hugging_face=False)
    assert [row["block_size"] for row in table] == [1, 1, 1, 1]
    assert [row["ms_pass_2k"] != "" for row in table] == [False, True, True, False]
    assert table[1]["gain_predicted"] > 0


def test_nothing_is_predicted_of_passes_that_the_equation_does_not_know():
    """It knows blocks of one size, and passes that commit one and begin the next."""
    decoders = {"separate": SetBlock(4, commit="separate"), "range": SetBlock((2, 4)), "fused": SetBlock(4)}
    table = measure(tiny_model(), prompts([4]), decoders, [1], max_new_tokens=8, repeats=1, hugging_face=False)
    for name in ("gain_predicted", "gain_counted"):
        assert [row[name] != "" for row in table] == [False, False, False, True]


def test_predicted_gain_is_equation_16():
    assert predicted_gain(4, 16, 1.0, 1.0, 1.0) == 4  # equal pass times: tokens per forward, k / l
    assert predicted_gain(4, 16, 2.0, 3.0, 5.0) == 16 * 2 / (5 + 3 * 3)


def test_counted_passes_are_equation_16_where_every_row_is_in_step():
    # 3 blocks of 16 in 12 passes, of which 3 commit: 15 times k positions, twice as many for two rows.
    for rows, time_row in ((1, 2.0), (2, 1.5)):
        of_one, of_blocks = Passes(48, 48 * rows), Passes(12, 15 * 16 * rows)
        counted = counted_gain(of_one, of_blocks, rows, 16, time_row, 2.0, 3.0, 5.0)
        assert counted == pytest.approx(predicted_gain(4, 16, 2.0, 3.0, 5.0))


def test_rows_that_are_not_in_step_are_counted_by_what_goes_through_the_layers():
    # One token at a time: both rows in 30 passes, one of them in 18. In blocks: two rows that never commit in the same
    # pass, so that of 15 passes six are half as wide again.
    of_one, of_blocks = Passes(48, 30 * 2 + 18), Passes(15, (15 * 2 + 6) * 16)
    counted = counted_gain(of_one, of_blocks, 2, 16, 1.5, 2.0, 3.0, 5.0)
    assert counted == pytest.approx((30 * 2 + 18 * 1.5) / (9 * 3 + 6 * 4))
    # Without a time between them, those of one row cost what the others do.
    assert counted_gain(of_one, of_blocks, 2, 16, 2.0, 2.0, 3.0, 5.0) == pytest.approx(48 * 2 / (9 * 3 + 6 * 4))


def test_both_decoders_are_counted_by_what_goes_through_the_layers(monkeypatch):
    """The table hands over passes and positions behind the prefill, the autoregressive ones for as many tokens."""
    given, plain = [], table.counted_gain
    monkeypatch.setattr(table, "counted_gain", lambda *inputs: given.append(inputs) or plain(*inputs))
    model, rows, decoder = tiny_model(), prompts([4, 6, 5]), SetBlock(4, EntropyBound(0.8))
    measured = measure(model, rows, {"sbd": decoder}, [3], 10, [2, 5, 9], repeats=1, hugging_face=False)
    one, blocks = (generate(model, rows, of, 10, eos_token_id=[2, 5, 9]) for of in (Autoregressive(), decoder))
    assert len(set(map(len, one.tokens))) > 1
    same = sum(map(len, blocks.tokens)) / (sum(map(len, one.tokens)) - 3)  # the prefill gives one token of each row
    narrow, wide, rows_of_batch, k, time_row, time_1, time_k, time_2k = given[0]
    assert narrow.count == pytest.approx(same * (one.model_passes - 1))
    assert narrow.queries == pytest.approx(same * one.model_queries)
    assert one.model_queries < 3 * (one.model_passes - 1)
    assert (wide.count, wide.queries) == (blocks.model_passes - 1, blocks.model_queries)
    assert (rows_of_batch, k) == (3, 4)
    columns = ("ms_pass_1_row", "ms_pass_1", "ms_pass_k", "ms_pass_2k")
    assert [measured[1][name] for name in columns] == [round(1e3 * t, 4) for t in (time_row, time_1, time_k, time_2k)]


def test_gains_are_told_apart_from_the_prefill(monkeypatch):
    """By a clock that only moves where it is told to: 100 s for a prefill, 2 s for every other pass."""
    model, now = tiny_model(), [0.0]
    prefill, forward = Engine.prefill, Engine.forward

    def takes(seconds, run):
        def slow(engine, *inputs, **named):
            now[0] += seconds
            return run(engine, *inputs, **named)

        return slow

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(Engine, "prefill", takes(100, prefill))
    monkeypatch.setattr(Engine, "forward", takes(2, forward))
    decoders = {"sbd": SetBlock(4, EntropyBound(0.8)), "spec": SelfSpeculative(4, 2)}
    rows = prompts([4, 6, 5])
    ntp, sbd, spec = measure(model, rows, decoders, [1], max_new_tokens=10, repeats=1, hugging_face=False)
    assert ntp["seconds_decoding"] == 2 * 3 * 9
    assert sbd["seconds_decoding"] == 2 * (sbd["model_passes"] - 3)
    assert ntp["gain_decoding"] == 1
    # Ten tokens of each row come behind the prefill, but nine where the prefill gives the first.
    assert sbd["gain_decoding"] == pytest.approx(30 / (sbd["model_passes"] - 3), abs=1e-4)
    assert spec["gain_decoding"] == pytest.approx(27 / (spec["model_passes"] - 3), abs=1e-4)
    assert sbd["gain_measured"] == pytest.approx((300 + 54) / (300 + sbd["seconds_decoding"]), abs=1e-4)
    one = measure(model, rows, decoders, [1], max_new_tokens=1, repeats=1, hugging_face=False)
    assert [row["gain_decoding"] for row in one] == ["", "", ""]


def test_a_slow_moment_in_another_turn_of_every_round_changes_nothing(monkeypatch):
    """By a clock as above; in each of three rounds one batch of three, and what is measured behind it, takes longer."""
    model, now, calls, late = tiny_model(), [0.0], [0], [False]
    prefill, forward, plain = Engine.prefill, Engine.forward, contenders.generate

    def takes(seconds, run):
        def slow(engine, *inputs, **named):
            now[0] += 50 if late[0] else seconds
            return run(engine, *inputs, **named)

        return slow

    def generate(*given, **named):
        number, turn = divmod(calls[0] - 3, 6)  # three to warm up, then in each round the beginning and the whole
        calls[0] += 1
        late[0] = number >= 0 and turn // 2 == number
        return plain(*given, **named)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(Engine, "prefill", takes(100, prefill))
    monkeypatch.setattr(Engine, "forward", takes(2, forward))
    monkeypatch.setattr(contenders, "generate", generate)
    (ntp,) = measure(model, prompts([4, 6, 5]), {}, [1], max_new_tokens=10, repeats=3, hugging_face=False)
    assert calls[0] == 3 + 3 * 6
    assert ntp["spread"] == 0  # every round has its slow moment
    assert (ntp["seconds"], ntp["seconds_decoding"], ntp["ms_pass_1"]) == (3 * (100 + 2 * 9), 3 * 2 * 9, 2000)


@pytest.mark.parametrize("disturbs", [False, True])
def test_a_run_that_waits_for_every_part_is_not_the_one_that_is_timed(disturbs, monkeypatch):
    """By a clock that moves by 1 s while a GPU is waited for, as it is once at the end of a run that is timed."""
    model, now, runs = tiny_model(), [0.0], []

    def wait(seconds=1.0):
        now[0] += seconds
        return now[0]

    plain = contenders.generate
    monkeypatch.setattr("time.perf_counter", lambda: wait(1e-9))
    monkeypatch.setattr(contenders, "generate", lambda *args, **named: runs.append(0) or plain(*args, **named))
    monkeypatch.setattr(Stopwatch, "disturbs", disturbs)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: wait())
    (ntp,) = measure(model, prompts([4, 6, 5]), {}, [1], max_new_tokens=10, repeats=1, hugging_face=False)
    # The warm-up, the beginnings, and once or twice for each batch.
    assert len(runs) == 3 * (4 if disturbs else 3)
    assert ntp["seconds"] == (3 if disturbs else 0)


def test_bad_input():
    with pytest.raises(UserError, match="prompt"):
        measure(tiny_model(), [], {})
    with pytest.raises(UserError, match="3 prompts do not fill batches of 2"):
        measure(tiny_model(), prompts([4, 5, 6]), {}, [1, 2])
    with pytest.raises(UserError, match="repeats"):
        measure(tiny_model(), [[1]], {}, repeats=0)
