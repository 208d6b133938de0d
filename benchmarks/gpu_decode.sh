#!/usr/bin/env bash
# Decoders of a random one-billion-parameter Llama in bf16 on one GPU, with and without CUDA graphs: at most six minutes.
# Usage: benchmarks/gpu_decode.sh [output folder]; needs an environment with this package and a CUDA build of torch.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-results/gpu_decode}"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$out/gpu.txt"
PYTHONPATH=. timeout 350 "${PYTHON:-python}" benchmarks/random_llama.py --shape 1b --device cuda --dtype bfloat16 \
    --executions eager graphs --prompt 512 --new 128 --output "$out/decoders.csv" | tee "$out/log.txt"
