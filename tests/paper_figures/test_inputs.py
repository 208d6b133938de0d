from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from synthetic import records, tiny

from paper_figures import inputs
from sbd.config import Arm
from sbd.errors import UserError


def written(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(folder / "records.csv", index=False)
    return folder / "records.csv"


def test_a_good_file_is_read_whole_with_columns_to_come(tmp_path: Path) -> None:
    frame = records(tiny()).assign(seed=3)
    read = inputs.read_records(written(tmp_path, frame))
    assert len(read) == len(frame)
    assert list(read.columns) == [*frame.columns]


@pytest.mark.parametrize("column", inputs.COLUMNS)
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    with pytest.raises(UserError, match=rf"column {column} is missing"):
        inputs.read_records(written(tmp_path, records(tiny()).drop(columns=column)))


def _set(column: str, value: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame[column] = frame[column].astype(object)
        frame.loc[2, column] = value
        return frame

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("score", math.nan), "line 4: score is not a value"),
        (_set("tokens_per_forward", math.inf), "line 4: tokens_per_forward is not a value"),
        (_set("n", 0), "zero problems for llama-tiny/"),
        (_set("score_low", 99.9), "low <= score"),
        (_set("score_high", 101.0), "high <= 100"),
        (_set("tokens_per_forward", 0.0), "tokens per forward of zero"),
        (lambda frame: pd.concat([frame, frame.iloc[[5]]]), "two rows for"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        inputs.read_records(written(tmp_path, change(records(tiny()))))


def test_no_file_and_no_csv(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        inputs.read_records(tmp_path / "records.csv")
    (tmp_path / "records.csv").write_text("")
    with pytest.raises(UserError, match="not a CSV file"):
        inputs.read_records(tmp_path / "records.csv")


def test_a_missing_job_is_named_with_what_to_run() -> None:
    experiment = tiny()
    frame = records(experiment)
    frame = frame.loc[~((frame["decoder"] == "gamma_0.1") & (frame["model"] == "qwen3-tiny"))]
    arms = [Arm(run="sbd", decoder="gamma_0.1")]
    with pytest.raises(
        UserError,
        match=r"tiny_gsm and 1 more; run .*--experiment \S*experiment.yaml .*--decoder gamma_0.1",
    ):
        inputs.rows_of(frame, experiment, arms)
    rows, missing = inputs.rows_of(frame, experiment, arms, partial=True)
    assert rows["model"].tolist() == ["llama-tiny"] * 2
    assert missing == ["qwen3-tiny/sbd/gamma_0.1/tiny_gsm", "qwen3-tiny/sbd/gamma_0.1/tiny_code"]


def test_rows_of_one_benchmark_must_be_over_the_same_number_of_problems() -> None:
    frame = records(tiny())
    frame.loc[(frame["decoder"] == "gamma_0.1") & (frame["benchmark"] == "tiny_code"), "n"] = 400
    with pytest.raises(UserError, match="tiny_code: some rows are over 400 problems and some over 500"):
        inputs.rows_of(frame, tiny(), tiny().table1.rows)


def test_an_empty_field_is_not_the_text_nan(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,\n2,3\n")
    assert inputs.read_csv(tmp_path / "x.csv", ["a", "b"], [], "", empty=["b"])["b"].isna().tolist() == [True, False]
    (tmp_path / "x.csv").write_text("a,b\n1,nan\n2,3\n")
    with pytest.raises(UserError, match="line 2: b is not a value"):
        inputs.read_csv(tmp_path / "x.csv", ["a", "b"], [], "", empty=["b"])


def test_what_no_experiment_asks_for_is_not_called_missing() -> None:
    experiment = tiny()
    arms = [Arm(run="ntp", decoder="gamma_0"), Arm(run="sbd", decoder="ntp")]
    with pytest.raises(UserError, match=r"experiment\.yaml does not evaluate a model and benchmark on which all"):
        inputs.rows_of(records(experiment), experiment, arms, complete=True)
