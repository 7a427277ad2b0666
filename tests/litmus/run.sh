#!/usr/bin/env bash
# run.sh [--weaker]: checks the litmus tests of this folder with herd7 under the memory model RC11 (docs/memory_ordering.md).
# With --weaker, every order is relaxed, and every test must fail. $HERD: the command, if it is not herd7.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
read -ra herd <<<"${HERD:-herd7}"
command -v "${herd[0]}" >/dev/null || {
  echo "litmus: ${herd[0]} is missing: build herdtools7, or name the command in HERD" >&2
  exit 2
}

weaken() { sed -E 's/memory_order_(seq_cst|acq_rel|acquire|release)/memory_order_relaxed/g' "$1"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
for test in *.litmus; do
  wanted=holds
  cp "$test" "$work"
  if [[ ${1:-} == --weaker ]]; then
    wanted=fails
    weaken "$test" >"$work/$test"
  fi
  "${herd[@]}" -model rc11.cat "$work/$test" >"$work/log" 2>&1 || true
  outcome=fails
  # "Ok": no forbidden execution. A data race makes the program undefined.
  if grep -qx Ok "$work/log" && ! grep -qi 'undef\|^Flag' "$work/log"; then outcome=holds; fi
  if ! grep -q '^Observation' "$work/log"; then outcome="is not read"; fi
  if [[ $outcome == "$wanted" ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    sed 's/^/  /' "$work/log"
  fi
  echo "${test%.litmus} $outcome"
done
echo "$passed passed, $failed failed"
((failed == 0))
