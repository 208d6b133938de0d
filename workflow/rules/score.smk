# Benchmarks that are scored apart: the job with the model only generates, another runs the programs, on a CPU and as often as
# the way of scoring changes.
use rule evaluate as generate with:
    output:
        generations="results/{scale}/generated/{model}/{run}/{decoder}/{benchmark}/generations.jsonl",
        made="results/{scale}/generated/{model}/{run}/{decoder}/{benchmark}/generated.json",
    log:
        "results/{scale}/logs/generate/{model}/{run}/{decoder}/{benchmark}.log",
    wildcard_constraints:
        benchmark=one_of(benchmarks_scored("apart")),


rule score:
    input:
        generations="results/{scale}/generated/{model}/{run}/{decoder}/{benchmark}/generations.jsonl",
        made="results/{scale}/generated/{model}/{run}/{decoder}/{benchmark}/generated.json",
        problems=test_file,
        task=lambda wildcards: EXPERIMENT.benchmarks[wildcards.benchmark].task,
    output:
        generations="results/{scale}/records/{model}/{run}/{decoder}/{benchmark}/generations.jsonl",
        record="results/{scale}/records/{model}/{run}/{decoder}/{benchmark}/record.json",
    log:
        "results/{scale}/logs/score/{model}/{run}/{decoder}/{benchmark}.log",
    wildcard_constraints:
        benchmark=one_of(benchmarks_scored("apart")),
    conda:
        "../../environment.yml"
    threads: 1
    params:
        code=code_fingerprint("sbd.evaluation.run", "sbd.evaluation.tasks", "sbd._sandbox_child"),
    shell:
        'OMP_NUM_THREADS={threads} python -m sbd score --experiment "$SBD_EXPERIMENT"'
        " --model {wildcards.model} --run {wildcards.run} --decoder {wildcards.decoder}"
        " --benchmark {wildcards.benchmark} 2>&1 | tee {log}"
