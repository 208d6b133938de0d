rule train:
    input:
        data=data_manifest,
        parent=parent_checkpoint,
    output:
        # The file written last, and no folder: Snakemake deletes outputs before a job and after its failure, and the state
        # that a rerun goes on from must outlive both.
        "results/{scale}/models/{model}/{run}/checkpoint/training.json",
    log:
        "results/{scale}/logs/train/{model}/{run}.log",
    wildcard_constraints:
        run=one_of(name for name, run in EXPERIMENT.runs.items() if run.objective == "ntp"),
    # The longest way through the DAG first: evaluations fill the gaps between trainings.
    priority: 10
    conda:
        "../../environment.yml"
    threads: lambda wildcards: max(1, 8 * EXPERIMENT.runs[wildcards.run].gpus)
    resources:
        gpu=lambda wildcards: EXPERIMENT.runs[wildcards.run].gpus,
        mem_mb=lambda wildcards: host_memory_mb(EXPERIMENT, wildcards.model, wildcards.run),
    params:
        settings=lambda wildcards: settings(EXPERIMENT.models[wildcards.model], EXPERIMENT.runs[wildcards.run]),
        code=code_fingerprint("sbd.steps.train"),
    shell:
        # Slurm signals every process of a job: only the training itself may act on it, since it saves before it ends.
        "trap '' TERM USR1;"
        ' OMP_NUM_THREADS={threads} python -m sbd train --experiment "$SBD_EXPERIMENT"'
        " --model {wildcards.model} --run {wildcards.run} --threads {threads} 2>&1 | tee {log}"


# Rows with noisy blocks take longer: started first, they do not keep one core waiting at the end.
use rule train as train_blocks with:
    wildcard_constraints:
        run=one_of(name for name, run in EXPERIMENT.runs.items() if run.objective != "ntp"),
    priority: 20
