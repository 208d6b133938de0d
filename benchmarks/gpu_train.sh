#!/usr/bin/env bash
# Training on one GPU: FlexAttention against the dense mask, and speed, MFU, memory and compiles of NTP and SBD. At most eight minutes.
# Usage: benchmarks/gpu_train.sh [output folder]; needs an environment with this package and a CUDA build of torch.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-results/gpu_train}"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$out/gpu.txt"
PYTHONPATH=. timeout 470 "${PYTHON:-python}" benchmarks/gpu_train.py --out "$out" 2>&1 | tee "$out/log.txt"
