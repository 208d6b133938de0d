"""Set Block Decoding (arXiv 2509.04185): train, decode and evaluate next-token plus masked-token language models.

The public names below are loaded on first use, so that ``import sbd`` costs nothing where torch is not needed.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "load": "sbd.modeling",
    "training_mask": "sbd.attention",
    "generate": "sbd.decoding",
    "Generation": "sbd.decoding",
    "Autoregressive": "sbd.decoding",
    "SetBlock": "sbd.decoding",
    "LongestPrefix": "sbd.decoding",
    "SelfSpeculative": "sbd.decoding",
    "EntropyBound": "sbd.samplers",
    "CumulativeEntropy": "sbd.samplers",
    "Factor": "sbd.samplers",
    "ConfidenceThreshold": "sbd.samplers",
    "TopK": "sbd.samplers",
    "entropy_bound_prefix": "sbd.samplers",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sbd' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
