"""Progress with the loss and the remaining time: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


class _Lines:
    """A stream for tqdm that ends each update with a new line, for logs and for jobs that share a terminal."""

    def write(self, text: str) -> None:
        text = text.strip("\r\n ")
        if text:
            sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stderr.flush()


class _Log(tqdm):  # type: ignore[type-arg]  # has none when it runs
    """A progress of lines; its end adds none where the last update has said it all."""

    def close(self) -> None:
        if not self.disable and self.n == self.last_print_n:
            self.leave = False
        super().close()


def progress(total: int | None, label: str, initial: int = 0, unit: str = "step", disable: bool = False) -> tqdm[Any]:
    """A tqdm bar to call ``update`` and ``set_postfix_str`` on."""
    if sys.stderr.isatty():
        return tqdm(total=total, desc=label, initial=initial, unit=unit, dynamic_ncols=True, disable=disable)
    left = "/{total_fmt} {unit} [{elapsed} gone, {remaining} left]" if total is not None else " {unit} [{elapsed} gone]"
    form = "{desc}: {n_fmt}" + left + "{postfix}"
    return _Log(
        total=total,
        desc=label,
        initial=initial,
        unit=unit,
        file=_Lines(),
        disable=disable,
        mininterval=15,
        maxinterval=30,
        bar_format=form,  # type: ignore[arg-type]
    )
