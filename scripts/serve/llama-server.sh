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
port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
log=$(mktemp)
# shellcheck disable=SC2086 # a list of options
"$program" --host 127.0.0.1 --port "$port" --jinja -m "$model" ${SERVER_OPTIONS:-} >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$log"' EXIT
export SERVER="http://127.0.0.1:$port"
for _ in $(seq 300); do
  kill -0 "$server" 2>/dev/null || { tail -n 20 "$log" >&2; echo 'llama-server ended' >&2; exit 1; }
  if node -e 'fetch(process.env.SERVER + "/health").then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))'; then
    "$@"
    exit
  fi
  sleep 1
done
echo 'llama-server did not answer in five minutes' >&2
exit 1
