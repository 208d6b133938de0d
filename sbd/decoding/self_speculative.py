"""Placeholder."""

from sbd.decoding.engine import Engine
from sbd.decoding.rows import Rows
from sbd.decoding.settings import SelfSpeculative


def decode(engine: Engine, rows: Rows, settings: SelfSpeculative) -> None:
    """Not here yet."""
    raise NotImplementedError
