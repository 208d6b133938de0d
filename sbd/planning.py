"""What an experiment costs before it is run: memory per GPU, time and price of every training and evaluation.

Arithmetic on the sizes in the experiment file; nothing is loaded and nothing measured. Times are operations (or, for
generation, the roofline of :mod:`sbd.roofline`) at a stated share of the peak (MFU). Upper bounds where the data
decide: rows are taken as full, and their noisy half as long as the clean one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sbd.config import Experiment, HardwareConfig, RunConfig
from sbd.errors import UserError
from sbd.roofline import B200, H100, H200, Precision, Roofline, Shape
from sbd.workload import layer_parameters, parameters, training_operations

GIB = 2**30
GPUS = {"H100": H100, "H200": H200, "B200": B200}
USABLE = 0.92
"""Share of a GPU's memory that is planned with; the rest goes to fragments."""
RUNTIME_BYTES = 3 * GIB
"""CUDA context, communication buffers, workspaces."""
CHUNK_ROWS = 4096
"""Rows of logits that exist at a time (sbd.objectives)."""
BLOCK_TOKENS_PER_FORWARD = 3.0
"""What a block decoder is assumed to reveal per pass; the paper reports 3 to 5 on long answers."""
PROMPT_TOKENS = 1024
SHAPE_KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
LIKELIHOOD_ANSWERS = 4
"""Texts that a likelihood task (max_new_tokens 1) reads for each problem: one for every answer to choose from."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU."""

    weights: float
    optimiser: float
    gradients: float
    activations: float
    logits: float
    cache: float = 0.0

    @property
    def total(self) -> float:
        """With what the runtime takes."""
        parts = (self.weights, self.optimiser, self.gradients, self.activations, self.logits, self.cache)
        return sum(parts) + RUNTIME_BYTES

    def explained(self) -> str:
        """The parts in words, largest first."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        listed = sorted(parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in listed if size)


@dataclass(frozen=True)
class Job:
    """A line of the plan. decoder and benchmark are empty for a training."""

    model: str
    run: str
    decoder: str
    benchmark: str
    gpus: int
    micro_rows: int
    accumulation: int
    memory: Memory
    tokens_per_second: float
    hours: float

    @property
    def gpu_hours(self) -> float:
        """Of all its GPUs."""
        return self.gpus * self.hours

    @property
    def name(self) -> str:
        """As an error calls it."""
        return "/".join(part for part in (self.model, self.run, self.decoder, self.benchmark) if part)


def shape_of(experiment: Experiment, model: str) -> Shape | None:
    """The sizes that the file states for a model; None if it states too few of them."""
    config = experiment.models[model]
    vocabulary = config.shape.get("vocab_size") or experiment.tokenizer.vocab_size
    if vocabulary is None or any(name not in config.shape for name in SHAPE_KEYS):
        return None
    return Shape.of(config.label or model, config.shape, int(vocabulary))


def training_memory(experiment: Experiment, model: str, run: RunConfig, gpus: int, micro_rows: int) -> Memory | None:
    """Bytes on each of ``gpus`` with ``micro_rows`` rows a pass, in bf16 with float32 master weights and AdamW.

    Split over the GPUs: float32 weights and gradients, two AdamW moments. Whole on each: the bf16 copies at work, and
    the activations. A layer's own activations are taken as 10 hidden + 4 feed-forward sizes per token, in bf16, and as
    much again for their gradients; with activation checkpointing one layer has them at a time, the others keep their
    input.
    """
    shape = shape_of(experiment, model)
    if shape is None:
        return None
    tied = bool(experiment.models[model].shape.get("tie_word_embeddings"))
    count = parameters(shape, tied)
    split = gpus if run.sharded else 1
    layer, head = layer_parameters(shape), shape.vocabulary * shape.hidden * (1 if tied else 2)
    # Two layers, since the next is fetched while one works; embedding and head stay for the whole pass.
    at_work = 2 * (head + 2 * layer) if split > 1 else 2 * count
    tokens = micro_rows * experiment.data.sequence_length * (1 if run.objective == "ntp" else 2)
    inside = tokens * 2 * (10 * shape.hidden + 4 * shape.ffn)
    kept = tokens * 2 * shape.hidden
    activations = shape.layers * kept + 2 * inside if run.activation_checkpointing else (shape.layers + 1) * inside
    if run.attention in (None, "sdpa"):  # a dense mask, and scores since the mask is no pattern that a kernel knows
        row = tokens // micro_rows
        activations += micro_rows * row * row * (1 + 2 * shape.heads)
    rows = min(CHUNK_ROWS, tokens)
    # Per logit: bf16 and float32, and the gradient of both; then the rows that predict, and their gradient.
    logits = rows * shape.vocabulary * 12 + 2 * kept
    return Memory(
        weights=4 * count / split + at_work,
        optimiser=8 * count / split,
        gradients=4 * count / split + (at_work if split > 1 else 0),
        activations=activations,
        logits=logits,
    )


def micro_rows(
    experiment: Experiment, model: str, run_name: str, hardware: HardwareConfig | None = None, gpus: int | None = None
) -> int:
    """Rows per pass and rank: as stated, or for "auto" the most that fit and divide a rank's share of the batch.

    gpus: those of the run, if left out.
    """
    run = experiment.runs[run_name]
    if run.micro_rows != "auto":
        return run.micro_rows
    if run.attention == "flash_attention_2":  # which finds the documents of one row by their positions
        return 1
    ranks = max(run.gpus if gpus is None else gpus, 1)
    share = run.batch_rows // ranks
    room = USABLE * (hardware or experiment.hardware).memory_gib * GIB
    for rows in range(share, 1, -1):
        memory = training_memory(experiment, model, run, ranks, rows) if share % rows == 0 else None
        if memory is not None and memory.total <= room:
            return rows
    return 1


def training_job(experiment: Experiment, model: str, run_name: str, hardware: HardwareConfig, gpus: int) -> Job | None:
    """A training on ``gpus`` GPUs."""
    shape, run = shape_of(experiment, model), experiment.runs[run_name]
    rows = micro_rows(experiment, model, run_name, hardware, gpus)
    memory = training_memory(experiment, model, run, gpus, rows)
    if shape is None or memory is None:
        return None
    length = experiment.data.sequence_length
    clean = run.batch_rows * length
    tokens = clean * (1 if run.objective == "ntp" else 2)
    pairs = tokens * min(length, hardware.document_tokens) / 2
    predicted = clean * (1 if run.objective == "ntp" else 1.5)  # half of the noisy tokens are masked
    seconds = training_operations(shape, tokens, pairs, predicted) / (
        hardware.mfu * GPUS[hardware.gpu].attention_peak * gpus
    )
    return Job(
        model,
        run_name,
        "",
        "",
        gpus=gpus,
        micro_rows=rows,
        accumulation=-(-run.batch_rows // (rows * gpus)),
        memory=memory,
        tokens_per_second=clean / seconds,
        hours=run.steps * seconds / 3600,
    )


def evaluation_job(experiment: Experiment, job: tuple[str, str, str, str], hardware: HardwareConfig) -> Job | None:
    """An evaluation on one GPU, in bf16; without `expected` and `limit` the time of no problem.

    A batch lasts until its longest answer ends, and a last one that is not full takes as long as a full one.
    """
    model, _, decoder_name, benchmark_name = job
    shape, benchmark = shape_of(experiment, model), experiment.benchmarks[benchmark_name]
    if shape is None:
        return None
    decoder = experiment.decoder(decoder_name, benchmark_name)
    size = decoder.block_size or 1
    block = max(size) if isinstance(size, tuple) else size
    batch, longest = benchmark.batch_size, PROMPT_TOKENS + benchmark.max_new_tokens
    tied = bool(experiment.models[model].shape.get("tie_word_embeddings"))
    memory = Memory(
        weights=2 * parameters(shape, tied),
        optimiser=0,
        gradients=0,
        activations=batch * PROMPT_TOKENS * 2 * (10 * shape.hidden + 4 * shape.ffn),
        logits=batch * block * shape.vocabulary * 10,
        cache=batch * longest * shape.layers * 2 * shape.kv_heads * shape.head_dim * 2,
    )
    gpu = GPUS[hardware.gpu]
    bf16 = replace(gpu, linear_peak=gpu.attention_peak)
    answer = hardware.answer_share * benchmark.max_new_tokens
    expected = experiment.data.sources[benchmark.source].expected or 0
    problems = min(benchmark.limit or expected, expected or benchmark.limit or 0)
    per_pass = 1.0 if decoder.kind == "autoregressive" else BLOCK_TOKENS_PER_FORWARD
    cached = int(PROMPT_TOKENS + answer / 2)
    roofline = Roofline(shape, bf16, Precision(2, 2, 2))
    seconds = roofline.forward(batch, block, cached) / hardware.mfu
    if block > 1:  # the first pass of a block carries the finished one before it too, as in `Roofline.speed_up`
        first = roofline.forward(batch, 2 * block, cached, head_rows=block) / hardware.mfu
        seconds += (first - seconds) * min(1.0, per_pass / block)
    prefill = roofline.forward(batch, PROMPT_TOKENS, PROMPT_TOKENS // 2, head_rows=1) / hardware.mfu
    prompts = LIKELIHOOD_ANSWERS if benchmark.max_new_tokens == 1 else 1
    return Job(
        *job,
        gpus=1,
        micro_rows=batch,
        accumulation=1,
        memory=memory,
        tokens_per_second=batch * per_pass / seconds,
        hours=-(-problems // batch) * (prompts * prefill + answer / per_pass * seconds) / 3600,
    )


def jobs(experiment: Experiment, hardware: HardwareConfig) -> Iterator[Job]:
    """Every job of the DAG that wants a GPU: trainings, then evaluations of their models."""
    for model, run in experiment.trainings():
        gpus = experiment.runs[run].gpus
        if gpus and (found := training_job(experiment, model, run, hardware, gpus)):
            yield found
    for job in experiment.jobs():
        if experiment.runs[job[1]].gpus and (found := evaluation_job(experiment, job, hardware)):
            yield found


def unplanned(experiment: Experiment) -> list[str]:
    """Trainings that the plan leaves out, each with the reason; so it does their evaluations."""
    found = []
    for model, run in experiment.trainings():
        if not experiment.runs[run].gpus:
            found.append(f"{model}/{run}: the run asks for no GPU (`gpus`)")
        elif shape_of(experiment, model) is None:
            found.append(f"{model}/{run}: the model's `shape` does not state {', '.join(SHAPE_KEYS)} and vocab_size")
    return found


def refuse_what_cannot_fit(experiment: Experiment, hardware: HardwareConfig | None = None) -> None:
    """Raise a UserError for the first job that needs more memory than its GPUs have."""
    hardware = hardware or experiment.hardware
    for job in jobs(experiment, hardware):
        if job.memory.total > USABLE * hardware.memory_gib * GIB:
            advice = (
                "lower batch_size or max_new_tokens"
                if job.decoder
                else (
                    "raise gpus with sharded: true, lower micro_rows or sequence_length, or set "
                    "activation_checkpointing and attention: flex_attention"
                )
            )
            raise UserError(
                f"{job.name} needs {job.memory.total / GIB:.0f} GiB on each of {job.gpus} GPU(s), and of the "
                f"{hardware.memory_gib:g} GiB of a {hardware.gpu} {USABLE:.0%} may be planned with (GiB: "
                f"{job.memory.explained()}); {advice}"
            )


def host_memory_mb(experiment: Experiment, model: str, run: str) -> int:
    """Main memory of a training: every rank loads the float32 weights, and a state is copied there to be written."""
    shape, config = shape_of(experiment, model), experiment.runs[run]
    ranks = max(config.gpus, 1)
    # Without sizes in the file: as for a model of a billion parameters.
    count = 1_000_000_000 if shape is None else parameters(shape)
    return int((max(4 * count * ranks, 12 * count + 4 * count) + 4 * GIB * ranks) / 2**20)
