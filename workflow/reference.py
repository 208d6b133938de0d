"""Keep the small results of a run as those we stand behind, and show them in README.md.

``python -m workflow.reference tiny`` (or ``make reference``) copies tables, figures and CSV files of
experiments/tiny.yaml to results/reference/tiny with what made them, and puts tables, figure and the verdicts on the
paper's claims between the markers of README.md, where it has them.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sbd.config import Experiment
from sbd.experiment_files import load_experiment

README = Path("README.md")


def copy(scale: str) -> Path:
    """Copy the small results of ``experiments/SCALE.yaml``; returns the folder they are in now."""
    experiment = load_experiment(Path("experiments") / f"{scale}.yaml")
    source, target = Path("results") / scale, Path("results/reference") / scale
    files = [*sorted(source.glob("*.csv")), *sorted(source.glob("tables/*")), *sorted(source.glob("figures/*"))]
    timed = sorted(experiment.work_folder.glob("speed/*/*.csv")) if experiment.speed else []
    if not (source / "records.csv").is_file() or len(files) < 3:
        sys.exit(f"reference: error: {source} holds no finished run; run `snakemake` on its experiment first")
    shutil.rmtree(target, ignore_errors=True)
    for file, above in [*((file, source) for file in files), *((file, experiment.work_folder) for file in timed)]:
        place = target / file.relative_to(above)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)
    (target / "provenance.json").write_text(json.dumps(provenance(experiment), indent=2) + "\n", encoding="utf-8")
    return target


def provenance(experiment: Experiment) -> dict[str, Any]:
    """What made the records, and how many seconds the trainings and evaluations of ``experiment`` took."""
    records = [read(experiment.record_folder(*job) / "record.json") for job in experiment.jobs()]
    trainings = [read(experiment.run_folder(*job) / "checkpoint/training.json") for job in experiment.trainings()]
    shared = records[0]["provenance"]
    revisions = sorted({record["provenance"]["git_revision"] for record in records})
    return {
        "git_revisions": revisions,
        "git_dirty": any(record["provenance"]["git_dirty"] for record in records),
        **{name: shared[name] for name in ("date", "device", "threads", "dtype", "python", "packages")},
        "training_precision": trainings[0]["precision"],
        "training_seconds": round(sum(training["seconds_this_session"] for training in trainings)),
        "generation_seconds": round(sum(record["seconds"] for record in records)),
        "trainings": len(trainings),
        "evaluations": len(records),
    }


def read(file: Path) -> Any:
    """The JSON in a file."""
    return json.loads(file.read_text(encoding="utf-8"))


def shown(text: str, scale: str, folder: Path) -> str:
    """``text`` with what it shows of ``scale`` between its markers; nothing is changed without markers."""
    table, losses = (
        (folder / f"tables/{name}.md").read_text(encoding="utf-8").strip() for name in ("table1", "losses")
    )
    first = re.search(r"<!-- results of (\S+): begin -->", text)
    if first and scale != first[1]:  # the paper's rows are the same at every scale: README has them once
        table = table.partition("\n\n| reported by the paper")[0]
    made = read(folder / "provenance.json")
    revisions = " and ".join(revision[:10] for revision in made["git_revisions"])
    source = (
        f"Revision {revisions}, {made['device']}, torch {made['packages']['torch']}, precision of "
        f"training {'float32' if made['training_precision'] == 'no' else made['training_precision']}; "
        f"{made['trainings']} trainings took {made['training_seconds'] / 60:.0f} core minutes, the generations of "
        f"{made['evaluations']} evaluations {made['generation_seconds'] / 60:.0f}."
    )
    figure = f"![Accuracy against tokens per forward pass]({(folder / 'figures/pareto.png').as_posix()})"
    text = between_markers(text, f"results of {scale}", f"{table}\n\n{figure}\n\n{losses}\n\n{source}")
    claims = folder / "tables/claims.csv"
    return between_markers(text, f"verdicts of {scale}", verdicts(claims)) if claims.is_file() else text


def verdicts(claims: Path) -> str:
    """The claims of the paper with their verdicts, in short; the evidence is in the table itself."""
    with open(claims, encoding="utf-8", newline="") as file:
        found = {row["claim"]: row["verdict"] for row in csv.DictReader(file)}
    rows = "".join(f"\n| {claim} | {verdict} |" for claim, verdict in found.items())
    return f"| claim | verdict |\n| --- | --- |{rows}\n\nEvidence: `{claims.with_suffix('.md').as_posix()}`."


def between_markers(text: str, name: str, replacement: str) -> str:
    """``text`` with ``replacement`` between the markers of that name, if it has them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    marked = f"{begin}\n\n{replacement}\n\n{end}"
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: marked, text, flags=re.S)


def main(scales: list[str]) -> None:
    """Copy, and rewrite README.md."""
    for scale in scales:
        folder = copy(scale)
        README.write_text(shown(README.read_text(encoding="utf-8"), scale, folder), encoding="utf-8")
        print(f"{folder} and {README} show results/{scale}")


if __name__ == "__main__":
    main(sys.argv[1:])
