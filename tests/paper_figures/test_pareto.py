from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from synthetic import records, tiny

from paper_figures import pareto, style
from sbd.errors import UserError

GRID = ["0", "0.01", "0.1", "0.2", "0.35", "0.6", "1.5"]


def texts(figure: Figure) -> str:
    found = [figure.get_supxlabel()] + [axes.get_title() for axes in figure.axes]
    return "\n".join(found)


def test_points_labels_and_bytes(tmp_path: Path) -> None:
    frame = records(tiny())
    with style.house_style():
        figure = pareto.draw(tiny(), frame)
        first = style.save(figure, tmp_path / "a", "pareto")
        assert [path.name for path in first] == ["pareto.pdf", "pareto.png"]
        _check_points(figure, frame)
        _check_labels(figure)
        assert "n = 500" in texts(figure)
        assert "scale tiny; curves: SBD" in texts(figure).replace("\n", " ")
        assert "PARTIAL" not in texts(figure)
    pdf = first[0].read_bytes()
    assert b"/FontFile2" in pdf
    assert b"Date" not in pdf
    assert b"/Type3" not in pdf


def _check_points(figure: Figure, frame: pd.DataFrame) -> None:
    """Each curve holds the grid of its model in the order of the experiment."""
    curve = next(line for line in figure.axes[0].lines if len(line.get_xdata()) == 8)  # type: ignore[arg-type]
    of_model = frame[(frame["model"] == "llama-tiny") & (frame["run"] == "sbd") & (frame["benchmark"] == "tiny_gsm")]
    of_model = of_model[of_model["decoder"] != "ntp"]
    assert list(curve.get_xdata()) == of_model["tokens_per_forward"].tolist()  # type: ignore[arg-type]
    assert list(curve.get_ydata()) == of_model["score"].tolist()  # type: ignore[arg-type]


def _check_labels(figure: Figure) -> None:
    """Sixteen values of gamma per panel; no two on each other, none outside."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for axes in figure.axes:
        labels = [child for child in axes.texts if isinstance(child, Annotation)]
        assert sorted(label.get_text() for label in labels) == sorted([*GRID, "\N{INFINITY}"] * 2)
        boxes = [label.get_window_extent(renderer) for label in labels]
        assert not [1 for one, two in combinations(boxes, 2) if one.padded(-1).overlaps(two.padded(-1))]
        frame = axes.get_window_extent(renderer).padded(6)
        assert all(frame.containsx(box.x0) and frame.containsx(box.x1) for box in boxes)
        assert all(frame.containsy(box.y0) and frame.containsy(box.y1) for box in boxes)


def test_a_figure_of_part_of_the_data_says_so() -> None:
    frame = records(tiny())
    frame = frame.loc[frame["decoder"] != "gamma_0.6"]
    with style.house_style():
        with pytest.raises(UserError, match=r"llama-tiny/sbd/gamma_0\.6/tiny_gsm and 3 more"):
            pareto.draw(tiny(), frame)
        figure = pareto.draw(tiny(), frame, partial=True)
        assert "PARTIAL: 4 evaluations are missing" in texts(figure)
