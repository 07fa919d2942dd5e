# Sourced by the scripts beside it: starts a server on a free port, runs a command with its address in $SERVER, ends it.

port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
export SERVER="http://127.0.0.1:$port"

# serving NAME COMMAND… : $server has the words that start the server. It is ready when /health answers.
serving() {
  local name=$1 log
  shift
  log=$(mktemp)
  "${server[@]}" >"$log" 2>&1 &
  local process=$!
  # shellcheck disable=SC2064 # the values of now
  trap "kill $process 2>/dev/null || true; wait $process 2>/dev/null || true; rm -f '$log'" EXIT
  for _ in $(seq 300); do
    kill -0 "$process" 2>/dev/null || { tail -n 20 "$log" >&2; echo "$name ended" >&2; exit 1; }
    if node -e 'fetch(process.env.SERVER + "/health").then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))'; then
      "$@"
      exit
    fi
    sleep 1
  done
  echo "$name did not answer in five minutes" >&2
  exit 1
}
