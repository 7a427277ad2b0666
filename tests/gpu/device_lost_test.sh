#!/usr/bin/env bash
# A GPU that is lost in the middle of requests. In the context of one of two unified workers, a kernel traps, after which every
# CUDA call of that process fails. The worker must log this and exit with status 1; every request must end with the tokens of an
# undisturbed run. Writes OUT/device_lost.json, exits with 1 when a check failed.
#   device_lost_test.sh BIN MODEL OUT    BIN: the folder of baton-router and the others, and of libgpu_trap.so
# Settings from the environment: DEVICES ("cuda:0 cuda:0"), WORKER_SET (further --set, separated by blanks).
# shellcheck disable=SC2154,SC2119  # "equal" and "leaked" set variables
set -uo pipefail

readonly BIN=$1 MODEL=$2 OUT=$3
read -r LOST_DEVICE OTHER_DEVICE <<<"${DEVICES-cuda:0 cuda:0}"
readonly REQUESTS=${REQUESTS-16} TOKENS=${TOKENS-512} LIMIT=${LIMIT-120}
WORKER_SET=${WORKER_SET-}
# shellcheck source=tests/gpu/cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

start_router --set policy=round_robin
start_worker decode stays "$OTHER_DEVICE" unified=true
ask_all unified
wait_all unified

PRELOAD=$BIN/libgpu_trap.so
start_worker decode lost "$LOST_DEVICE" unified=true
PRELOAD=
await_joined lost
ask_all disturbed
await lost baton_worker_sequences_running 'v > 0'
say "a kernel traps, while $(metric lost baton_worker_sequences_running) requests run there"
begin=$(date +%s%N)
kill -USR2 "${pids[lost]}"
timeout 30 tail --pid="${pids[lost]}" -f /dev/null || fail "the worker still runs after 30 seconds"
wait "${pids[lost]}"
status=$?
took=$((($(date +%s%N) - begin) / 1000000))
unset 'pids[lost]'
((status == 1)) || fail "the exit status is $status, not 1"
message=$(grep -m1 'cannot go on' "$OUT/lost.log" | tr -d '"')
[[ $message == *"lost its device"* ]] || fail "the log does not say that the device is lost"
wait_all disturbed
equal disturbed_equal disturbed
retries=$(metric router baton_router_retries_total)
[[ $retries != 0 ]] || fail "no request was retried"
leaked stays_leaked stays

cat >"$OUT/device_lost.json" <<JSON
{"test": "device_lost", "requests": $REQUESTS, "tokens": $TOKENS, "devices": ["$LOST_DEVICE", "$OTHER_DEVICE"],
 "exit_status": $status, "exit_ms": $took, "equal": $disturbed_equal, "retries": $retries, "leaked_blocks": $stays_leaked,
 "log": "$message", "failures": $failures}
JSON
cat "$OUT/device_lost.json"
((failures == 0))
