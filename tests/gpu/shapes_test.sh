#!/usr/bin/env bash
# Prefill and decode workers with different numbers of tensor ranks and stages, in their default mode, in real processes. All answers, greedy and
# sampled, must equal those of a unified worker, which runs before the others, token for token: undisturbed, when a rank of any worker is killed or
# loses its GPU in the middle of requests, and when sequences are preempted. A group must end within a second after its rank, and
# no block may leak. Prints a JSON line for each round, also into OUT/shapes.jsonl; exits with 1 when a check failed.
#   shapes_test.sh BIN MODEL OUT       BIN: the folder of baton-router and the others, and of libgpu_trap.so
#                                      MODEL: a model, or a folder with config.json only, which gets a tokenizer of bytes
# Settings from the environment:
#   SHAPES ("3 1-2 2-2 1+1-2 1-4 2-1 1x2-2 2-1x2"): tensor ranks, or tensor ranks x stages, of the prefill workers and of the
#     decode worker; or 3, one worker of three tensor ranks
#   FAULTS ("prefill_leader prefill_rank decode_leader decode_rank device_lost preempted"): rounds after the undisturbed one
#   DEVICES ("cuda:0 cuda:1 cuda:2 cuda:3"): prefill workers take the first ones; when too few are left, the decode worker takes
#     the last ones and shares them. With CPUs there is no device_lost.
#   REQUESTS (200), FAULT_REQUESTS (64): of a round; TOKENS (64), CONCURRENT (32), SENTENCES (26), STEP_TOKENS (256: of prompts)
#   PREEMPT_BLOCKS (160): KV blocks of the decode worker in the round "preempted"
#   UNIFIED_RANKS (1): tensor ranks of the unified worker, on the first devices; 0: there is none, and REFERENCE is undisturbed
#   REFERENCE (unified; undisturbed: answers after a fault must equal those of the undisturbed round only)
#   END_LIMIT_MS (1000): the longest time in which a worker ends after its rank
#   TRANSPORT (cuda_ipc; empty: any), WORKER_SET (further --set, separated by blanks), LIMIT (seconds of a wait, 90),
#   TIME_LIMIT (seconds after which no round begins, 540)
# shellcheck disable=SC2154,SC2119  # "same" and "leaked" set variables
set -uo pipefail

readonly BIN=$1 OUT=$3
MODEL=$2
read -ra DEVICES <<<"${DEVICES-cuda:0 cuda:1 cuda:2 cuda:3}"
SHAPES=${SHAPES-3 1-2 2-2 1+1-2 1-4 2-1 1x2-2 2-1x2}
FAULTS=${FAULTS-prefill_leader prefill_rank decode_leader decode_rank device_lost preempted}
REQUESTS=${REQUESTS-200} FAULT_REQUESTS=${FAULT_REQUESTS-64} STEP_TOKENS=${STEP_TOKENS-256} PREEMPT_BLOCKS=${PREEMPT_BLOCKS-160}
((FAULT_REQUESTS <= REQUESTS)) || FAULT_REQUESTS=$REQUESTS # the others have no answer to compare with
readonly TOKENS=${TOKENS-64} LIMIT=${LIMIT-90} TIME_LIMIT=${TIME_LIMIT-540}
readonly END_LIMIT_MS=${END_LIMIT_MS-1000} UNIFIED_RANKS=${UNIFIED_RANKS-1}
REFERENCE=${REFERENCE-unified}
((UNIFIED_RANKS > 0)) || REFERENCE=undisturbed
readonly TRANSPORT=${TRANSPORT-cuda_ipc} WORKER_SET=${WORKER_SET-}
# shellcheck disable=SC2034  # cluster.sh reads them
readonly CONCURRENT=${CONCURRENT-32} SAMPLING=mixed
# shellcheck source=tests/gpu/cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
MODEL=$(model_with_tokenizer)

declare -A ranks stages places # of each worker; places are devices, separated by blanks
workers=()
: >"$OUT/shapes.jsonl"
record() { echo "$1" | tee -a "$OUT/shapes.jsonl"; }
retries() { metric router baton_router_retries_total; }
on_gpus() { [[ ${DEVICES[0]} != cpu ]]; }

# place NAME SHAPE FIRST: sets ranks, stages and places of a worker whose first device is number FIRST. Too few devices are left:
# the worker has the last ones.
place() {
  local of=1 first=$3
  [[ $2 != *x* ]] || of=${2#*x}
  stages[$1]=$of
  ranks[$1]=$((${2%x*} * of))
  if ((first + ranks[$1] > ${#DEVICES[@]})); then first=$((${#DEVICES[@]} - ranks[$1])); fi
  places[$1]="${DEVICES[*]:first:ranks[$1]}"
}

# plan SHAPE: sets workers, ranks, stages and places.
plan() {
  local of_prefill one next=0
  IFS=+ read -ra of_prefill <<<"${1%-*}"
  workers=() ranks=() stages=() places=()
  for one in "${of_prefill[@]}"; do
    workers+=("prefill-${#workers[@]}")
    place "${workers[-1]}" "$one" "$next"
    next=$((next + ranks[${workers[-1]}]))
  done
  workers+=(decode-0)
  place decode-0 "${1#*-}" "$next"
}

# launch_planned NAME [SETTING…]: prompts run in short steps, and there is no prefix cache, so that every prompt is handed over.
launch_planned() {
  local name=$1 role=${1%-*} settings=("${@:2}")
  [[ $role == prefill ]] && settings+=("engine.max_step_tokens=$STEP_TOKENS")
  if ((ranks[$name] > 1)); then
    settings+=("engine.tensor_parallel=$((ranks[$name] / stages[$name]))" "engine.pipeline_parallel=${stages[$name]}")
    on_gpus && settings+=("engine.devices=[\"${places[$name]// /\",\"}\"]")
  fi
  PRELOAD=
  if [[ $role == decode && $FAULTS == *device_lost* ]] && on_gpus; then PRELOAD=$BIN/libgpu_trap.so; fi
  launch_worker "$role" "$name" "${places[$name]%% *}" engine.prefix_cache=false \
    ${TRANSPORT:+"transfer.require_transport=$TRANSPORT"} "${settings[@]}"
}

start_cluster() {
  local name
  start_router --set local_tokens=0
  for name in "${workers[@]}"; do launch_planned "$name"; done
  for name in "${workers[@]}"; do await_ready "$name"; done
  for name in "${workers[@]}"; do await_joined "$name"; done
}

# await_load NAME ROUND: waits until an eighth of the requests is answered and the worker computes sequences.
await_load() {
  local answered
  while kill -0 "${pids[requests]}" 2>/dev/null; do
    answered=$(find "$OUT" -name "$2.*.json" -size +0 | wc -l)
    if ((answered >= REQUESTS / 8)) && metric "$1" baton_worker_sequences_running | awk '{exit !($1 > 0)}'; then return 0; fi
  done
  fail "$2: the requests ended before $1 was killed"
}

# kill_rank NAME SIGNAL WHICH: sends SIGNAL to the leader of the worker or to its last rank. Sets `ended_ms` to the milliseconds
# after which all of its processes have ended, and `status` to the leader's exit status.
kill_rank() {
  local name=$1 leader=${pids[$1]} followers target begin one
  mapfile -t followers < <(pgrep -P "$leader")
  ((${#followers[@]} == ranks[$name] - 1)) || fail "$name has ${#followers[@]} followers"
  target=$leader
  [[ $3 == rank ]] && target=${followers[-1]}
  say "$2 to the $3 of $name, while $(metric "$name" baton_worker_sequences_running) sequences run there"
  begin=$(date +%s%N)
  kill "-$2" "$target"
  for one in "$leader" "${followers[@]}"; do
    await_end "$one" || fail "process $one of $name still runs after 10 seconds"
  done
  ended_ms=$((($(date +%s%N) - begin) / 1000000))
  ((ended_ms <= END_LIMIT_MS)) || fail "$name ended $ended_ms ms after its $3"
  kill -9 "$leader" "${followers[@]}" 2>/dev/null
  wait "$leader" 2>/dev/null
  status=$?
  unset "pids[$name]"
}

# finish SHAPE ROUND MORE: waits for the answers, compares them and records the round. MORE: further fields of its JSON line.
finish() {
  local key="$1.$2" as_unified as_undisturbed blocks
  wait_all "$key"
  as_unified=null
  ((UNIFIED_RANKS == 0)) || same as_unified "$key" unified
  as_undisturbed=$as_unified
  [[ $as_unified == "$REQUESTS" ]] || same as_undisturbed "$key" "$1.undisturbed"
  if [[ $REFERENCE == unified ]]; then
    ((as_unified == REQUESTS)) || fail "$key: $as_unified of $REQUESTS answers equal the unified worker's"
  elif ((as_undisturbed != REQUESTS)); then
    fail "$key: $as_undisturbed of $REQUESTS answers equal those of the undisturbed round"
  fi
  leaked blocks "${workers[@]}"
  record "{\"shape\": \"$1\", \"round\": \"$2\", \"requests\": $REQUESTS, \"equal\": $as_unified, \"equal_to_undisturbed\": $as_undisturbed, \"leaked_blocks\": $blocks, $3\"seconds\": $((SECONDS - begun)), \"failures\": $failures}"
}

# undisturbed SHAPE
undisturbed() {
  local begun=$SECONDS handed transport
  ask_all "$1.undisturbed"
  wait "${pids[requests]}"
  handed=$(grep -lE '"transport":"[a-z]' "$OUT/$1".undisturbed.*.json | wc -l)
  transport=$(grep -oh '"transport":"[^"]*"' "$OUT/$1".undisturbed.*.json | sort -u | cut -d'"' -f4 | paste -sd, -)
  ((handed > 0)) || fail "$1: no KV was handed over"
  finish "$1" undisturbed "\"handed_over\": $handed, \"transport\": \"$transport\", "
}

# lose SHAPE FAULT WORKER SIGNAL WHICH: a round in which a process of a worker ends; the worker is started again.
lose() {
  local REQUESTS=$FAULT_REQUESTS begun=$SECONDS before after ended_ms=0 status=0
  before=$(retries)
  ask_all "$1.$2"
  if await_load "$3" "$1.$2"; then
    kill_rank "$3" "$4" "$5"
    [[ $4 == KILL && $5 == leader ]] || ((status == 1)) || fail "$1.$2: the exit status of $3 is $status, not 1"
    launch_planned "$3"
    await_ready "$3"
  fi
  wait "${pids[requests]}"
  after=$(retries)
  ((after > before)) || fail "$1.$2: no request was retried"
  finish "$1" "$2" "\"ended_ms\": $ended_ms, \"exit_status\": $status, \"retries\": $((after - before)), "
}

# preempted SHAPE: a round with a decode worker whose KV arena is too small for the requests that it computes.
preempted() {
  local REQUESTS=$FAULT_REQUESTS begun=$SECONDS ended_ms status preemptions
  kill_rank decode-0 KILL leader
  launch_planned decode-0 "engine.kv_blocks=$PREEMPT_BLOCKS"
  await_ready decode-0
  await_joined decode-0
  ask_all "$1.preempted"
  wait "${pids[requests]}"
  preemptions=$(metric decode-0 baton_preemptions_total)
  ((preemptions > 0)) || fail "$1: no sequence was preempted"
  finish "$1" preempted "\"preemptions\": $preemptions, "
}

# fault SHAPE FAULT: nothing when the shape has no such rank.
fault() {
  case $2 in
    prefill_leader) lose "$1" "$2" prefill-0 KILL leader ;;
    prefill_rank) ((ranks[prefill-0] == 1)) || lose "$1" "$2" prefill-0 KILL rank ;;
    decode_leader) lose "$1" "$2" decode-0 KILL leader ;;
    decode_rank) ((ranks[decode-0] == 1)) || lose "$1" "$2" decode-0 KILL rank ;;
    device_lost)
      on_gpus || return 0
      if ((ranks[decode-0] == 1)); then lose "$1" "$2" decode-0 USR2 leader; else lose "$1" "$2" decode-0 USR2 rank; fi
      ;;
    preempted) preempted "$1" ;;
    *) fail "there is no fault $2" ;;
  esac
}

# three_ranks: a worker of three ranks joins, or it ends and its log says which numbers of ranks the model allows.
three_ranks() {
  local i how=joins
  ((${#DEVICES[@]} >= 3)) || { fail "there are only ${#DEVICES[@]} devices for three ranks" && return; }
  workers=(decode-3)
  place decode-3 3 0
  start_router
  launch_planned decode-3
  for ((i = 0; i < LIMIT * 50; i++)); do
    grep -q '^ready' "$OUT/decode-3.ready" && break
    if ! kill -0 "${pids[decode-3]}" 2>/dev/null; then
      how=$(grep -o 'tensor_parallel is 3; .* must be one of [0-9, ]*' "$OUT/decode-3.log" | head -1)
      [[ -n $how ]] || fail "the log of a worker of three ranks does not say what it must be"
      break
    fi
    sleep 0.02
  done
  ((i < LIMIT * 50)) || fail "a worker of three ranks neither joins nor ends within $LIMIT seconds"
  record "{\"shape\": \"3\", \"round\": \"three_ranks\", \"result\": \"$how\", \"failures\": $failures}"
  stop_all
}

# unified: the answers that others are compared with. The worker has ended before others need its memory.
unified() {
  workers=(decode-unified)
  place decode-unified "$UNIFIED_RANKS" 0
  start_router --set local_tokens=0
  DETERMINISTIC=true launch_planned decode-unified unified=true
  await_ready decode-unified
  say "unified: $REQUESTS requests of $TOKENS tokens"
  ask_all unified
  wait_all unified
  stop_all
}

((UNIFIED_RANKS == 0)) || unified
DETERMINISTIC=auto
for shape in $SHAPES; do
  ((SECONDS < TIME_LIMIT)) || { fail "no time for the shape $shape" && continue; }
  if [[ $shape == 3 ]]; then
    three_ranks
    continue
  fi
  plan "$shape"
  say "$shape: $(for name in "${workers[@]}"; do echo "$name on ${places[$name]};"; done | paste -sd' ' -)"
  start_cluster
  undisturbed "$shape"
  for one in $FAULTS; do
    ((SECONDS < TIME_LIMIT)) || { fail "no time for $shape.$one" && continue; }
    fault "$shape" "$one"
  done
  stop_all
done
record "{\"test\": \"shapes\", \"model\": \"$(basename "$MODEL")\", \"shapes\": \"$SHAPES\", \"tokens\": $TOKENS, \"concurrent\": $CONCURRENT, \"reference\": \"$REFERENCE\", \"seconds\": $SECONDS, \"failures\": $failures}"
((failures == 0))
