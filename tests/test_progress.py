"""Progress in a log: lines now and then, the last one once."""

from __future__ import annotations

import pytest

from sbd.progress import progress


@pytest.mark.parametrize("interval", [0, 15])
def test_the_last_line_stands_once_in_a_log(interval: int, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(3, "evaluate", unit="problem") as bar:
        bar.mininterval = interval
        for _ in range(3):
            bar.set_postfix_str("2.00 tokens per forward", refresh=False)
            bar.update()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[2].partition(" ")[0] for line in lines].count("3/3") == 1
    assert lines[-1].startswith("evaluate: 3/3 problem")
