#!/usr/bin/env bash
# Starts llama.cpp's server with a model on a free port of this machine, runs a command with its address in $SERVER, and ends it.
#
#   npm run peers:python                                                     # once: brings the server
#   scripts/serve/llama-server.sh MODEL.gguf COMMAND [ARGUMENT…]             # exits as the command does
#   SERVER_OPTIONS="n_ctx=8192 rope_freq_base=500000" scripts/serve/llama-server.sh MODEL.gguf bash -c 'curl "$SERVER/props"'
#
# scripts/python/llama_server.py says which options there are.
set -euo pipefail
[ $# -ge 2 ] || { echo 'usage: scripts/serve/llama-server.sh MODEL.gguf COMMAND [ARGUMENT…]' >&2; exit 2; }
model=$1
shift
root="$(dirname "$0")/../.."
python="$root/.scratch/python/v5/bin/python"
[ -x "$python" ] || { echo 'llama-server is not installed: npm run peers:python' >&2; exit 2; }
[ -f "$model" ] || { echo "$model: there is no such file" >&2; exit 2; }
# shellcheck source=scripts/serve/serving.sh
. "$(dirname "$0")/serving.sh"
# shellcheck disable=SC2206 # a list of options
server=("$python" "$root/scripts/python/llama_server.py" "$model" "port=$port" ${SERVER_OPTIONS:-})
serving llama-server "$@"
