"""Keep the small results of a run as those we stand behind, and show them in README.md.

``python workflow/reference.py tiny`` (or ``make reference``) copies tables, figures and records.csv of results/tiny to
results/reference/tiny, and puts the table and the figure between the markers of README.md.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

README = Path("README.md")


def copy(scale: str) -> Path:
    """Copy the small results of ``scale``; returns the folder they are in now."""
    source, target = Path("results") / scale, Path("results/reference") / scale
    files = [source / "records.csv", *sorted(source.glob("tables/*")), *sorted(source.glob("figures/*"))]
    if len(files) < 3 or not files[0].is_file():
        sys.exit(f"reference: error: {source} holds no finished run; run `snakemake` on its experiment first")
    shutil.rmtree(target, ignore_errors=True)
    for file in files:
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)
    return target


def shown(text: str, scale: str, folder: Path) -> str:
    """``text`` with the table and figure of ``scale`` between its markers; nothing is changed without markers."""
    table = (folder / "tables/table1.md").read_text(encoding="utf-8").strip()
    figure = f"![Accuracy against tokens per forward pass]({(folder / 'figures/pareto.png').as_posix()})"
    begin, end = f"<!-- results of {scale}: begin -->", f"<!-- results of {scale}: end -->"
    replacement = f"{begin}\n\n{table}\n\n{figure}\n\n{end}"
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: replacement, text, flags=re.S)


def main(scales: list[str]) -> None:
    """Copy, and rewrite README.md."""
    for scale in scales:
        folder = copy(scale)
        README.write_text(shown(README.read_text(encoding="utf-8"), scale, folder), encoding="utf-8")
        print(f"{folder} and {README} show results/{scale}")


if __name__ == "__main__":
    main(sys.argv[1:])
