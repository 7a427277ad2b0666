#!/usr/bin/env bash
# The real model in real processes, through the public API: a prefill worker on one GPU and a decode worker on another.
# Greedy answers must equal those of a unified worker, token for token, also when either worker is killed in the middle of
# 32 running requests and started again. Prints its progress, writes OUT/cluster.json, exits with 1 when a check failed.
#   cluster_test.sh BIN MODEL OUT       BIN: the folder of baton-router and the others
# Settings from the environment: PREFILL_DEVICE (cuda:0), DECODE_DEVICE (cuda:1), UNIFIED_DEVICE (cuda:0),
# TRANSPORT (cuda_ipc; empty: any), WORKER_SET (further --set, separated by blanks).
# shellcheck disable=SC2154,SC2119  # "equal", "leaked" and "kill_amid" set variables
set -uo pipefail

readonly BIN=$1 MODEL=$2 OUT=$3
readonly PREFILL_DEVICE=${PREFILL_DEVICE-cuda:0} DECODE_DEVICE=${DECODE_DEVICE-cuda:1} UNIFIED_DEVICE=${UNIFIED_DEVICE-cuda:0}
readonly TRANSPORT=${TRANSPORT-cuda_ipc} WORKER_SET=${WORKER_SET-}
readonly REQUESTS=${REQUESTS-32} TOKENS=${TOKENS-256} LIMIT=${LIMIT-120}
# Long enough that prompts still run when the prefill worker is killed.
# shellcheck disable=SC2034  # cluster.sh reads it
readonly SENTENCES=${SENTENCES-96}

# shellcheck source=tests/gpu/cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

# Steps are short, so that prompts run when a worker is killed. There is no prefix cache, so that every prompt is handed over.
start_prefill() {
  start_worker prefill prefill-0 "$PREFILL_DEVICE" engine.max_step_tokens=64 engine.prefix_cache=false \
    ${TRANSPORT:+"transfer.require_transport=$TRANSPORT"}
}
start_decode() {
  start_worker decode decode-0 "$DECODE_DEVICE" engine.prefix_cache=false \
    ${TRANSPORT:+"transfer.require_transport=$TRANSPORT"}
}

retries() { metric router baton_router_retries_total; }

# kill_amid ROLE CONDITION: sends all requests, kills the role's worker once CONDITION holds for v, the number of requests
# that run on it, and starts the worker again. Sets ROLE_equal, ROLE_retries and ROLE_leaked.
kill_amid() {
  local role=$1 condition=$2 name=$1-0 before
  say "$role worker is killed"
  before=$(retries)
  ask_all "killed_$role"
  await "$name" baton_worker_sequences_running "$condition"
  say "kill -9 $name, while $(metric "$name" baton_worker_sequences_running) requests run there"
  kill -9 "${pids[$name]}"
  wait "${pids[$name]}" 2>/dev/null
  "start_$role"
  wait_all "killed_$role"
  equal "${role}_equal" "killed_$role"
  printf -v "${role}_retries" '%s' "$(awk "BEGIN {print $(retries) - $before}")"
  leaked "${role}_leaked" prefill-0 decode-0
}

# ---- the answers of a unified worker

start_router --set local_tokens=0
start_worker decode unified-0 "$UNIFIED_DEVICE" unified=true
say "unified: $REQUESTS requests of $TOKENS tokens"
ask_all unified
wait_all unified
ask_all again
wait_all again
equal again_equal again
stop_all

# ---- one prefill and one decode worker

start_router --set local_tokens=0
start_prefill
start_decode
say "disaggregated: $REQUESTS requests"
ask_all split
wait_all split
equal split_equal split
transport=$(grep -oh '"transport":"[^"]*"' "$OUT"/split.*.json | sort | uniq -c | awk '{print $2}' | cut -d'"' -f4 | paste -sd, -)
handed=$(grep -lE '"transport":"[a-z]' "$OUT"/split.*.json | wc -l)
bytes=$(grep -oh '"transfer_bytes":[0-9]*' "$OUT"/split.*.json | awk -F: '{sum += $2} END {print sum + 0}')
leaked split_leaked prefill-0 decode-0
((handed > 0)) || fail "no KV was handed over"

kill_amid prefill 'v > 0'
kill_amid decode "v >= $((REQUESTS / 4))"
[[ $prefill_retries != 0 && $decode_retries != 0 ]] || fail "a kill caused no retry: $prefill_retries retries of prefill, $decode_retries of decode"
"$BIN/baton" status --admin "$(address router admin)" | tee "$OUT/status.txt" >&2

cat >"$OUT/cluster.json" <<JSON
{"test": "cluster", "requests": $REQUESTS, "tokens": $TOKENS, "model": "$(basename "$MODEL")",
 "devices": {"unified": "$UNIFIED_DEVICE", "prefill": "$PREFILL_DEVICE", "decode": "$DECODE_DEVICE"},
 "unified_again_equal": $again_equal,
 "split": {"equal": $split_equal, "handed_over": $handed, "bytes": $bytes, "transport": "$transport", "leaked_blocks": $split_leaked},
 "killed_prefill": {"equal": $prefill_equal, "retries": $prefill_retries, "leaked_blocks": $prefill_leaked},
 "killed_decode": {"equal": $decode_equal, "retries": $decode_retries, "leaked_blocks": $decode_leaked},
 "failures": $failures}
JSON
cat "$OUT/cluster.json"
((failures == 0))
