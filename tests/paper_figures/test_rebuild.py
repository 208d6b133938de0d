"""All tables and figures from CSV files alone: those of the whole paper, made up, and those kept in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from synthetic import records
from test_decoding_speed import rows

from paper_figures import paper_index, rebuild
from sbd import columns, differences, roofline
from sbd.config import Experiment
from sbd.experiment_files import load_experiment

ROOT = Path(__file__).parents[2]


def made_up(experiment: Experiment, folder: Path) -> None:
    """The CSV files of ``collect`` for all jobs of an experiment; none of their numbers was measured."""
    folder.mkdir(parents=True)
    frame = records(experiment, n=50)
    frame.to_csv(folder / "records.csv", index=False)
    asked = set(experiment.jobs())
    pairs = [
        [model, benchmark, a.run, a.decoder, b.run, b.decoder, 50, -1.0, -2.5, 0.5, 0.4, 2, 1, 2.0, 1.9, 2.1]
        for a, b in differences.pairs(experiment)
        for model in experiment.models
        for benchmark in experiment.benchmarks
        if {(model, a.run, a.decoder, benchmark), (model, b.run, b.decoder, benchmark)} <= asked
    ]
    pd.DataFrame(pairs, columns=pd.Index(columns.DIFFERENCES)).to_csv(folder / "differences.csv", index=False)
    losses = [[m, r, 1000, 7, 0.5, 1200, None if "ntp" in r else 0.9, 600] for m, r in experiment.trainings()]
    pd.DataFrame(losses, columns=pd.Index(columns.LOSSES)).to_csv(folder / "losses.csv", index=False)
    metrics = [[m, r, 10 * i, 2 / i, 3 / i] for m, r in experiment.trainings() for i in range(1, 20)]
    pd.DataFrame(metrics, columns=pd.Index(columns.METRICS)).to_csv(folder / "metrics.csv", index=False)
    masked = [[m, r, 16, s, s / 16, s / 20, 9] for m, r in experiment.masked_losses() for s in range(1, 17)]
    pd.DataFrame(masked, columns=pd.Index(columns.MASKED_LOSS)).to_csv(folder / "matp_loss.csv", index=False)
    contrasts = []
    for model in experiment.models:
        for benchmark in experiment.benchmarks:
            found = [(differences.GAP_CLOSED, arms[0]) for arms in differences.gap_arms(experiment)]
            found += [(differences.ABOVE_FACTOR, arm) for arm, _ in differences.factor_arms(experiment)]
            contrasts += [
                [model, benchmark, name, arm.run, arm.decoder, "x", 50, 1.0, -0.5, 2.5, 9.0, 5.0, 20.0]
                for name, arm in found
            ]
    pd.DataFrame(contrasts, columns=pd.Index(columns.CONTRASTS)).to_csv(folder / "contrasts.csv", index=False)
    for path in paper_index.located(paper_index.SPEED[1], experiment, folder):
        path.parent.mkdir(parents=True)
        times = rows(path.parent.name)
        times.loc[~times["decoder"].str.startswith("gamma_0.1_k8")].to_csv(path, index=False)
    machine = roofline.Hardware("this machine (cpu)", 1e10, 1e10, 4e9, number_bytes=4)
    roofline.write_hardware(folder / "machine.csv", [machine])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table and figure of paper-tiny from made-up numbers, drawn once."""
    folder = tmp_path_factory.mktemp("rebuild")
    made_up(load_experiment(ROOT / "experiments/paper-tiny.yaml"), folder / "reference/paper-tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        done = rebuild.main(["--reference", str(folder / "reference"), "--output", str(folder / "out")])
    assert len(done) == sum(len(entry.outputs) for entry in paper_index.ENTRIES)
    return folder


def test_the_whole_paper_is_drawn(drawn: Path) -> None:
    for entry in paper_index.ENTRIES:
        for path in entry.writes(drawn / "out/paper-tiny"):
            assert Path(path).stat().st_size > 100
    claims = pd.read_csv(drawn / "out/paper-tiny/tables/claims.csv")
    assert "not attempted at this scale" not in set(claims["verdict"])
    assert any("seed 2" in where for where in claims["where"])


def test_what_lacks_data_is_refused_by_name_and_the_rest_is_drawn(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "reference/paper-tiny"
    shutil.copytree(drawn / "reference/paper-tiny", source)
    (source / "metrics.csv").unlink()
    frame = pd.read_csv(source / "records.csv")
    lost = (frame["decoder"] == "confidence_0.1").to_numpy()
    frame.loc[~lost].to_csv(source / "records.csv", index=False)
    monkeypatch.chdir(ROOT)
    some = ("figure4", "figures12_13", "table2")
    monkeypatch.setattr(paper_index, "ENTRIES", [e for e in paper_index.ENTRIES if e.module in some])
    with pytest.raises(rebuild.UserError, match="2 tables or figures are not drawn"):
        rebuild.main(["--reference", str(tmp_path / "reference"), "--output", str(tmp_path / "out")])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].startswith(f"paper-tiny: figure 4 is not drawn: no such file: {source}/metrics.csv; run `python")
    assert "figures 12 and 13 is not drawn: no record of llama-tiny/sbd/confidence_0.1/tiny_gsm" in said[1]
    assert not (tmp_path / "out/paper-tiny/figures/figure4.pdf").exists()
    assert (tmp_path / "out/paper-tiny/tables/table2.md").exists()


def test_the_reference_draws_what_is_kept_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables to the byte; figures may differ in bytes between versions of matplotlib."""
    monkeypatch.chdir(ROOT)
    done = rebuild.main(["--output", str(tmp_path)])
    assert {path.relative_to(tmp_path).parts[0] for path in done} == {
        path.name for path in (ROOT / "results/reference").iterdir() if path.is_dir()
    }
    for path in done:
        kept = ROOT / "results/reference" / path.relative_to(tmp_path)
        assert kept.is_file(), f"{kept} is missing; run `make reference`"
        if path.suffix in (".csv", ".md", ".tex"):
            assert kept.read_text() == path.read_text()
