#!/usr/bin/env bash
# Starts llama.cpp's server with a model on a free port of this machine, runs a command with its address in $SERVER, and ends it.
#
#   npm run peers:python -- --llama-server                                   # once: builds the server
#   scripts/serve/llama-server.sh MODEL.gguf COMMAND [ARGUMENT…]             # exits as the command does
#   SERVER_OPTIONS="-c 8192 -t 2" scripts/serve/llama-server.sh MODEL.gguf bash -c 'curl "$SERVER/props"'
set -euo pipefail
[ $# -ge 2 ] || { echo 'usage: scripts/serve/llama-server.sh MODEL.gguf COMMAND [ARGUMENT…]' >&2; exit 2; }
model=$1
shift
program="$(dirname "$0")/../../.scratch/python/llama-server/bin/llama-server"
[ -x "$program" ] || { echo 'llama-server is not built: npm run peers:python -- --llama-server' >&2; exit 2; }
[ -f "$model" ] || { echo "$model: there is no such file" >&2; exit 2; }
# shellcheck source=scripts/serve/serving.sh
. "$(dirname "$0")/serving.sh"
# shellcheck disable=SC2206 # a list of options
server=("$program" --host 127.0.0.1 --port "$port" --jinja -m "$model" ${SERVER_OPTIONS:-})
serving llama-server "$@"
