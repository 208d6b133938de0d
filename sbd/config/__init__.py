"""The schema of an experiment: models, runs, decoders and benchmarks, checked before anything runs.

Nothing here imports torch, so that a workflow may read it in a moment.
"""

from sbd.config.benchmark import BenchmarkConfig, EvaluationConfig
from sbd.config.data import STREAMED, DataConfig, SourceConfig
from sbd.config.decoder import DecoderConfig, SamplerConfig
from sbd.config.experiment import Experiment
from sbd.config.hardware import GPU_MEMORY_GIB, HardwareConfig
from sbd.config.hashes import fingerprint, settings_of
from sbd.config.model import SHAPE_KEYS, ModelConfig
from sbd.config.run import RunConfig
from sbd.config.shown import ParetoConfig, RunSpeedConfig, SpeedConfig, Table1Config, TracesConfig
from sbd.config.tokenizer import TokenizerConfig
from sbd.selection import Arm

__all__ = [
    "GPU_MEMORY_GIB",
    "SHAPE_KEYS",
    "STREAMED",
    "Arm",
    "BenchmarkConfig",
    "DataConfig",
    "DecoderConfig",
    "EvaluationConfig",
    "Experiment",
    "HardwareConfig",
    "ModelConfig",
    "ParetoConfig",
    "RunConfig",
    "RunSpeedConfig",
    "SamplerConfig",
    "SourceConfig",
    "SpeedConfig",
    "Table1Config",
    "TokenizerConfig",
    "TracesConfig",
    "fingerprint",
    "settings_of",
]
