"""``traces``: a page for each decoder that shows how it decodes the same prompt, pass by pass."""

from __future__ import annotations

import sbd
from sbd.config import Experiment, TracesConfig
from sbd.data import encode_prompt, read_problems
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.steps.checkpoints import trained_checkpoint
from sbd.trace import write_trace


def run(experiment: Experiment, settings: TracesConfig) -> None:
    """Write ``traces/DECODER.html`` beside the models, for every decoder of the experiment or those that are named."""
    checkpoint = trained_checkpoint(experiment, settings.model, settings.run)
    benchmark = experiment.benchmark_of(settings)
    path = experiment.source_file(benchmark.source, "test")
    problems = read_problems(path, settings.problem + 1)
    if len(problems) <= settings.problem:
        raise UserError(f"traces.problem is {settings.problem}, but {path} has {len(problems)} problems, from 0")
    prompt = problems[settings.problem]["prompt"]
    model, tokenizer = sbd.load(checkpoint)
    label = experiment.models[settings.model].label or settings.model
    for name in settings.decoders or experiment.decoders:
        out = sbd.generate(
            model,
            [encode_prompt(tokenizer, prompt)],
            decoder=make_decoder(experiment.decoders[name]),
            max_new_tokens=benchmark.max_new_tokens,
            eos_token_id=tokenizer.eos_token_id,
            record_entropy=True,
        )
        title = f"{label} ({experiment.runs[settings.run].label or settings.run}), decoder {name}"
        write_trace(experiment.work_folder / "traces" / f"{name}.html", out, tokenizer, prompt=prompt, title=title)
        print(f"{name}: {len(out.tokens[0])} tokens in {out.forward_passes[0]} passes")
