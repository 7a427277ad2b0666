#!/usr/bin/env bash
# Runs the gtest binaries of this folder, several processes at a time, and prints a JSON line for each binary. Writes the lines to
# OUT/gpu_tests.jsonl and the logs to OUT/logs. Exits with 1 when a test failed or did not end.
#   run_tests.sh TESTS OUT [GTEST_FLAG…]    TESTS: the folder of the binaries, build/cuda/tests
# Settings from the environment: JOBS (processes at a time, 10), LIMIT (seconds for a process, 600), ONLY (a pattern of binaries,
# gpu_*_test), WRAPPER (a command that runs the binaries, such as a compute-sanitizer).
set -uo pipefail

readonly TESTS=$1 OUT=$2
shift 2
readonly JOBS=${JOBS-10} LIMIT=${LIMIT-600} ONLY=${ONLY-gpu_*_test}
read -ra WRAPPER <<<"${WRAPPER-}"
mkdir -p "$OUT/logs"
rm -f "$OUT"/logs/* "$OUT/gpu_tests.jsonl"

# Processes among which the tests of a binary are divided: more for binaries of many tests.
shards_of() {
  case $1 in
    gpu_ops_parity_test) echo 8 ;;
    gpu_deterministic_test) echo 4 ;;
    gpu_model_test | gpu_attention_test | gpu_fp8_test) echo 2 ;;
    *) echo 1 ;;
  esac
}

run_shard() {
  local name=$1 shard=$2 shards=$3
  shift 3
  local log=$OUT/logs/$name.$shard begin=$SECONDS
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout -k 10 "$LIMIT" "${WRAPPER[@]}" "$TESTS/$name" "$@" >"$log" 2>&1
  echo "exit status $? after $((SECONDS - begin)) s" >>"$log"
}

names=()
for path in "$TESTS"/$ONLY; do [[ -x $path ]] && names+=("$(basename "$path")"); done
((${#names[@]})) || { echo "$TESTS has no binary $ONLY" >&2 && exit 1; }
# The longest ones go first.
for name in gpu_ops_parity_test "${names[@]}"; do
  [[ " ${names[*]} " == *" $name "* && ! -e $OUT/logs/$name.0 ]] || continue
  shards=$(shards_of "$name")
  for ((shard = 0; shard < shards; shard++)); do
    while (($(jobs -rp | wc -l) >= JOBS)); do wait -n; done
    run_shard "$name" "$shard" "$shards" "$@" &
    : >>"$OUT/logs/$name.$shard"
  done
done
wait

card=$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | awk '{$1 = $1; print}' | paste -sd, -)
for name in "${names[@]}"; do
  awk -v name="$name" -v card="$card" -v tool="${WRAPPER[*]}" '
    /^\[       OK \]/ {passed++}
    /^\[  FAILED  \] .*\(.* ms\)$/ {failed++; failures = failures " " $4}
    /^\[  SKIPPED \] .*\(.* ms\)$/ {skipped++; skips = skips " " $4}
    /ERROR SUMMARY:|RACECHECK SUMMARY:/ {sub(/^=+ /, ""); summary = summary (summary ? "; " : "") $0}
    /^exit status / {if ($3 != 0) {status = $3}; seconds += $5}
    END {
      printf "{\"card\": \"%s\", \"test\": \"%s\", \"passed\": %d, \"failed\": %d, \"skipped\": %d, \"seconds\": %d", card, name,
        passed, failed, skipped, seconds
      if (tool) printf ", \"tool\": \"%s\", \"summary\": \"%s\"", tool, summary
      if (status) printf ", \"exit_status\": %d", status
      if (failures) printf ", \"failures\": \"%s\"", substr(failures, 2)
      if (skips) printf ", \"skips\": \"%s\"", substr(skips, 2)
      print "}"
      exit failed > 0 || status > 0
    }' "$OUT/logs/$name".* || touch "$OUT/logs/failed"
done >"$OUT/gpu_tests.jsonl"
cat "$OUT/gpu_tests.jsonl"
[[ ! -e $OUT/logs/failed ]]
