"""Evaluation through lm-eval: a model class for its tasks, and evaluations that leave one record and their texts.

``model`` is the class for lm-eval, ``decoders`` builds and describes decoders, ``tasks`` is what the task files refer
to, ``run`` evaluates and scores.
"""

from sbd.evaluation.decoders import describe_decoder, make_decoder
from sbd.evaluation.model import SBDLM, GenerationSettings, cut_at_stop
from sbd.evaluation.run import evaluate, generate, read_generations, rescore, score
from sbd.evaluation.task_files import load_task

__all__ = [
    "SBDLM",
    "GenerationSettings",
    "cut_at_stop",
    "describe_decoder",
    "evaluate",
    "generate",
    "load_task",
    "make_decoder",
    "read_generations",
    "rescore",
    "score",
]
