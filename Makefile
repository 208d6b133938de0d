# make          the replication on this machine: models, table, figure and report of experiments/tiny.yaml
# make environment  make .venv and nothing else (each of the others does so first)
# make test     all tests, with lint, format and types
# make paper-tiny  the whole paper at the tiny scale: all ablations, tables and figures; goes on from the results of `make`
# make tiny-long  the main comparison with four times the fine-tuning; goes on from the results of `make`
# make figures  draw all tables and figures of results/reference again, into results/rebuilt; trains nothing
# make smoke    the same workflow in a few minutes; its numbers mean nothing
# make gsm8k    the same workflow on GSM8K; DATA=FOLDER holds gsm8k_train.jsonl and gsm8k_test.jsonl
# make reference  copy the results of `make` (SCALES="tiny gsm8k") to results/reference and show them in README.md
# make lock     choose the newest versions that pyproject.toml allows and write requirements.lock
# make clean    delete the results of tiny, tiny-long, paper-tiny and smoke, and the figures drawn again
# PYTHON=python3.12 chooses the Python that .venv is made with, CORES=4 how many cores the workflow uses.

PYTHON ?= python3
CORES ?= all
DATA ?= data
SCALES ?= tiny

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHON
# Settings of the user's other Pythons have no place in .venv.
unexport PYTHONPATH PYTHONHOME

ENVIRONMENT := .venv/requirements.lock
SNAKEMAKE := snakemake --cores $(CORES) --rerun-incomplete --quiet host reason rules
# What Snakemake says of its own doings; left are the lines of the jobs, the share that is done, and errors.
CHATTER := '^(Select jobs|Execute [0-9]+ jobs|Finished jobid|Assuming unrestricted|Using shell|Conda environments|\[[A-Z][a-z]{2} |Complete log)'

# $(call replicate,SCALE,more --config values): run the workflow of an experiment and its report, and say where they are.
define replicate
	@$(SNAKEMAKE) --config experiment=experiments/$(1).yaml $(2) 2>&1 | grep --line-buffered -vE $(CHATTER)
	@$(SNAKEMAKE) --config experiment=experiments/$(1).yaml $(2) --report results/$(1)/report.html --quiet all
	@echo
	@echo "Table:  results/$(1)/tables/table1.md (also .csv, .tex)"
	@echo "Figure: results/$(1)/figures/pareto.pdf (also .png)"
	@echo "Report: results/$(1)/report.html (one file, opens in a browser without a network)"
endef

.PHONY: environment tiny paper-tiny tiny-long figures smoke gsm8k test lint lock reference clean
.DEFAULT_GOAL := tiny

environment: $(ENVIRONMENT)

tiny: $(ENVIRONMENT)
	$(call replicate,tiny)

paper-tiny: $(ENVIRONMENT)
	$(call replicate,paper-tiny)

tiny-long: $(ENVIRONMENT)
	$(call replicate,tiny-long)

figures: $(ENVIRONMENT)
	$(SNAKEMAKE) figures

smoke: $(ENVIRONMENT)
	$(call replicate,smoke)

gsm8k: $(ENVIRONMENT)
	$(call replicate,gsm8k,data=$(DATA))

# The slow tests, mostly of the workflow, and the others side by side: what both print is mixed.
test: lint
	@python -m pytest -m slow & slow=$$!; python -m pytest -m "not slow"; fast=$$?; wait $$slow && exit $$fast

lint: $(ENVIRONMENT)
	ruff check .
	ruff format --check .
	snakefmt --check .
	basedpyright

reference: $(ENVIRONMENT)
	python -m workflow.reference $(SCALES)

$(ENVIRONMENT): requirements.lock
	@workflow/environment.sh

lock:
	$(PYTHON) -m pip install --quiet --dry-run --ignore-installed --report - ".[dev]" \
		| $(PYTHON) workflow/write_lock.py requirements.lock

clean:
	rm -rf results/tiny results/tiny-long results/paper-tiny results/smoke results/rebuilt
