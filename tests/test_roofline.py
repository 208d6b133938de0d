from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from sbd import roofline
from sbd.errors import UserError
from sbd.roofline import B200, H100, H200, LLAMA, PAPER_H100, PAPER_SHAPE, PRINTED, QWEN, Roofline

REPORTED = Path(__file__).parents[1] / "experiments" / "reported"


def reported(name: str) -> list[dict[str, str]]:
    with open(REPORTED / name, encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(
    ("table", "name", "column", "count"),
    [
        (roofline.table3, "table3_slowdown.csv", "slowdown", 224),
        (roofline.table4, "table4_speedup.csv", "speedup", 288),
    ],
)
def test_as_printed_gives_every_cell_of_the_paper(table, name: str, column: str, count: int) -> None:  # type: ignore[no-untyped-def]
    cells = {
        tuple(value for key, value in cell.items() if key != column): cell[column]
        for cell in table(Roofline(PRINTED, PAPER_H100))
    }
    rows = reported(name)
    assert len(rows) == len(cells) == count
    for row in rows:
        key = tuple(int(value) for name, value in row.items() if name not in (column, "source"))
        # Half a unit of the third decimal: the cells are equal as printed, not only within 0.001.
        assert cells[key] == pytest.approx(float(row[column]), abs=0.00051), key


def test_one_operation_by_hand() -> None:
    model = Roofline(LLAMA, H100)
    # One token is bound by the bandwidth, 4096 tokens by the peak.
    assert model.linear(1, 4096, 14336) == pytest.approx((4096 * 14336 + 4096 + 14336) / 3.35e12)
    assert model.linear(4096, 4096, 14336) == pytest.approx(2 * 4096 * 4096 * 14336 / 1979e12)
    # Q and the output are 32 x 128 wide, K and V 8 x 128 over 100 + 16 keys.
    assert model.attention(2, 16, 100) == pytest.approx(2 * (2 * 16 * 4096 + 2 * 116 * 1024) / 3.35e12)
    assert model.attention(2, 64, 10**6) == pytest.approx(2 * 4 * 64 * (10**6 + 64) * 4096 / 989.5e12)


@pytest.mark.parametrize(("shape", "billions"), [(LLAMA, 7.50), (QWEN, 7.57)])
def test_true_shapes_move_the_weights_of_the_models(shape: roofline.Shape, billions: float) -> None:
    """Parameters but for the input embedding and norms: 8.03e9 - 0.525e9 for Llama, 8.19e9 - 0.622e9 for Qwen."""
    slow = replace(H100, linear_peak=1e30, attention_peak=1e30, bandwidth=1.0)
    seconds = Roofline(shape, slow).forward(batch=1, queries=1, cached=0)
    assert seconds / 1e9 == pytest.approx(billions, abs=0.011)
    printed = Roofline(replace(PRINTED, layers=32), slow).forward(1, 1, 0)
    assert printed / seconds > 2000


def llama_layer(batch: int, queries: int, cached: int) -> float:
    """One layer of Llama-3.1-8B on an H100, written out: every operation with its operations and bytes."""
    rows = batch * queries
    operations = [
        (2 * rows * 4096 * 4096, 4096 * 4096 + rows * 8192, 1979e12),  # Q
        (2 * rows * 4096 * 4096, 4096 * 4096 + rows * 8192, 1979e12),  # output
        (2 * rows * 4096 * 1024, 4096 * 1024 + rows * 5120, 1979e12),  # K
        (2 * rows * 4096 * 1024, 4096 * 1024 + rows * 5120, 1979e12),  # V
        (2 * rows * 4096 * 14336, 4096 * 14336 + rows * 18432, 1979e12),  # gate
        (2 * rows * 4096 * 14336, 4096 * 14336 + rows * 18432, 1979e12),  # up
        (2 * rows * 4096 * 14336, 4096 * 14336 + rows * 18432, 1979e12),  # down
        (
            2 * 2 * rows * (cached + queries) * 4096,
            2 * rows * 4096 + 2 * batch * (cached + queries) * 1024,
            989.5e12,
        ),
    ]
    return sum(max(done / peak, moved / 3.35e12) for done, moved, peak in operations)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("cached", [16, 2**16])
@pytest.mark.parametrize("block", [16, 64])
def test_corrected_sizes_equal_a_layer_written_out(batch: int, cached: int, block: int) -> None:
    model = Roofline(LLAMA.without_head(), H100)
    expected = llama_layer(batch, block, cached) / llama_layer(batch, 1, cached)
    assert model.slowdown(batch, block, cached) == pytest.approx(expected, rel=1e-12)


def test_what_the_corrected_sizes_change() -> None:
    """The sentences of docs/errata.md: block 16 survives, block 64 over a long cache does not."""
    printed, meant = Roofline(PRINTED, PAPER_H100), Roofline(PAPER_SHAPE, PAPER_H100)
    assert meant.slowdown(1, 16, 16) < 1.01
    assert meant.slowdown(16, 16, 16) < 1.11
    assert printed.slowdown(1, 64, 2**16) < 1.02
    assert meant.slowdown(1, 64, 2**16) > 1.4
    assert meant.slowdown(1, 64, 2**20) > 1.8
    assert printed.speed_up(1, 32, 2**20, 4) > 3.95
    assert meant.speed_up(1, 32, 2**20, 4) < 3.65


def test_speed_up_is_eq_16_with_logits_for_the_masks_only() -> None:
    model = Roofline(QWEN, H200)
    seconds = [model.forward(4, 16, 1000)] * 3
    bare = Roofline(QWEN.without_head(), H200)
    head = model.linear(4 * 16, 4096, 151936)
    assert model.forward(4, 16, 1000) == pytest.approx(bare.forward(4, 16, 1000) + head)
    first = bare.forward(4, 32, 1000) + head
    assert model.speed_up(4, 16, 1000, 4) == pytest.approx(16 * model.forward(4, 1, 1000) / (first + sum(seconds)))


def test_overhead_per_pass_favours_blocks_and_bandwidth_alone_changes_nothing_when_bound_by_it() -> None:
    plain = Roofline(LLAMA, B200)
    launched = Roofline(LLAMA, replace(B200, overhead=1e-3))
    assert launched.speed_up(8, 16, 4096, 4) > plain.speed_up(8, 16, 4096, 4)
    assert plain.forward(1, 1, 16) / Roofline(LLAMA, replace(B200, bandwidth=4e12)).forward(1, 1, 16) == pytest.approx(
        0.5
    )


def test_this_machine_can_be_measured_and_written_down(tmp_path: Path) -> None:
    machine = roofline.measure("cpu", repeats=1, size=128)
    roofline.write_hardware(tmp_path / "machine.csv", [machine, H100])
    assert roofline.read_hardware(tmp_path / "machine.csv") == [machine, H100]
    (tmp_path / "bad.csv").write_text("name,peak\nx,1\n")
    with pytest.raises(UserError, match=r"bad\.csv: not a file of machines .* run `python -m sbd\.roofline"):
        roofline.read_hardware(tmp_path / "bad.csv")
    assert machine.linear_peak > 1e7
    assert machine.bandwidth > 1e7
    assert machine.name == "this machine (cpu, float32)"
    assert machine.number_bytes == 4
    old = "name,linear_peak,attention_peak,bandwidth,overhead\nx,1,1,1,0\n"
    (tmp_path / "old.csv").write_text(old)
    with pytest.raises(UserError, match=r"no number_bytes.*; run `python -m sbd\.roofline --output .*old\.csv`"):
        roofline.read_hardware(tmp_path / "old.csv")


def test_a_shape_from_a_configuration_counts_the_weights_of_the_model() -> None:
    config = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    assert roofline.Shape.of("Llama-3.1-8B", {**config, "num_key_value_heads": 8}, 128256) == LLAMA
    assert roofline.Shape.of("x", config, 10).kv_heads == 32
    assert roofline.Shape.of("x", {**config, "head_dim": 64}, 10).head_dim == 64
