#!/usr/bin/env bash
# The time from the exec of a unified worker until a client has the first token of a request that already waits in the router:
# first without a kernel cache, then with the cache that the first start left. Writes OUT/start.json, exits with 1 when a start failed.
#   start_bench.sh BIN MODEL OUT    BIN: the folder of baton-router and the others
# Settings from the environment: DEVICE (cuda:0), STARTS (with the cache, 3), WORKER_SET (further --set, separated by blanks, such
# as model.load_format=dummy).
# shellcheck disable=SC2119  # start_router takes flags
set -uo pipefail

readonly BIN=$1 MODEL=$2 OUT=$3
readonly DEVICE=${DEVICE-cuda:0} STARTS=${STARTS-3} LIMIT=${LIMIT-120}
# shellcheck disable=SC2034  # cluster.sh reads them
readonly REQUESTS=1 TOKENS=1
WORKER_SET=${WORKER_SET-}
# shellcheck source=tests/gpu/cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

# first_token NAME: starts a worker, and sets `took` to the milliseconds until the request that waits for it is answered.
first_token() {
  local name=$1 setting settings=()
  for setting in $WORKER_SET; do settings+=(--set "$setting"); done
  ask_all "$name"
  sleep 0.5 # the request is in the router
  local begin
  begin=$(date +%s%N)
  "$BIN/baton-decode" --set "worker_id=$name" --set "model.path=\"$MODEL\"" --set "routers=[\"$(address router workers)\"]" \
    --set "engine.device=$DEVICE" --set "engine.kernel_cache=\"$OUT/kernels\"" --set unified=true "${settings[@]}" \
    >"$OUT/$name.ready" 2>"$OUT/$name.log" &
  pids[$name]=$!
  wait_all "$name"
  took=$((($(date +%s%N) - begin) / 1000000))
  [[ $(tokens_of "$OUT/$name.0.json") == *[0-9]* ]] || fail "$name: the answer has no token"
  kill "${pids[$name]}"
  wait "${pids[$name]}"
  unset "pids[$name]"
}

rm -rf "$OUT/kernels"
start_router
first_token without_cache
without=$took
with=()
for ((start = 1; start <= STARTS; start++)); do
  first_token "with_cache_$start"
  with+=("$took")
done

cat >"$OUT/start.json" <<JSON
{"test": "start", "device": "$DEVICE", "settings": "$WORKER_SET", "without_cache_ms": $without,
 "with_cache_ms": [$(IFS=,; echo "${with[*]}")], "failures": $failures}
JSON
cat "$OUT/start.json"
((failures == 0))
