#!/usr/bin/env bash
# A check that has nothing to check must fail. This test runs `dev` and `.ci/run` in trees without sources,
# without git and without tests, and expects a failure. Tools that such a tree lacks are replaced by stand-ins.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# stand_in NAME BODY: creates a program that precedes the system's program of this name in PATH.
stand_in() {
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$tree/bin/$1"
  chmod +x "$tree/bin/$1"
}

# expect_failure WHAT WORDS COMMAND…: expects that the command fails and prints WORDS.
expect_failure() {
  local what=$1 words=$2 output status
  shift 2
  output=$("$@" 2>&1)
  status=$?
  if ((status == 0)) || [[ $output != *"$words"* ]]; then
    failures=$((failures + 1))
    printf '%s: status %d, expected a failure with "%s" in its output, which is:\n%s\n' "$what" "$status" "$words" "$output"
  fi
}

# in_tree COMMAND…: runs the command in the tree, with the stand-ins and its own home folder.
in_tree() {
  (cd "$tree" && PATH="$tree/bin:$PATH" BATON_HOME="$tree/home" GIT_CEILING_DIRECTORIES="$(dirname "$tree")" "$@")
}

mkdir -p "$tree"/{bin,.ci,cmake,tests/lint,tests/gpu,tests/mutation,build/cpu,build/cuda,build/asan,build/fuzz,home/{models,python-clients}}
cp "$root/dev" "$tree/dev"
cp "$root/.ci/run" "$tree/.ci/run"
cp "$root"/cmake/packages*.txt "$tree/cmake/"
cp "$root"/tests/lint/*.py "$tree/tests/lint/"
cp "$root"/tests/mutation/mutate.py "$tree/tests/mutation/"
stand_in dpkg-query 'printf installed'
stand_in shellcheck 'true'
stand_in clang-format-14 'true'
stand_in clang-tidy-14 'true'
stand_in ninja 'true'
touch "$tree"/build/{cpu,cuda,asan,fuzz}/{build.ninja,CTestTestfile.cmake}
# These files make `dev` treat the model as present and verified.
touch -d '1 hour ago' "$tree/home/models/SmolLM2-135M-Instruct.Q4_1.gguf"
touch "$tree/home/models/SmolLM2-135M-Instruct.Q4_1.gguf.checked"
# As does this one with the clients, which it would install with pip.
clients=$(sed -n 's/^readonly CLIENT_PACKAGES="\(.*\)"$/\1/p' "$root/dev")
echo "$clients of $(python3 --version)" >"$tree/home/python-clients/.version"

expect_failure "lint without git" "must be a checkout" in_tree ./dev lint
expect_failure "fmt without git" "must be a checkout" in_tree ./dev fmt
git -c init.defaultBranch=main init -q "$tree"
expect_failure "lint without sources" "knows of no sources" in_tree ./dev lint
expect_failure "the tree's check without sources" "no sources to check" in_tree python3 tests/lint/check_tree.py
# The lower layer includes a header of the upper layer, which its target does not link.
mkdir "$tree"/{lower,upper}
echo 'baton_library(lower SOURCES lower.cc)' >"$tree/lower/CMakeLists.txt"
echo 'baton_library(upper SOURCES upper.cc DEPS baton::lower)' >"$tree/upper/CMakeLists.txt"
printf '#pragma once\n' >"$tree/upper/upper.h"
printf '#include "upper/upper.h"\n' | tee "$tree/upper/upper.cc" >"$tree/lower/lower.cc"
expect_failure "an include of a target that is not linked" \
  "lower/lower.cc:1: upper/upper.h belongs to upper, which lower does not link" in_tree python3 tests/lint/check_tree.py
rm "$tree/lower/CMakeLists.txt"
expect_failure "a source without a target" "lower/lower.cc:1: belongs to no target" in_tree python3 tests/lint/check_tree.py
rm -r "$tree"/{lower,upper}
mkdir -p "$tree"/kvtransfer/{a,b}
echo '#include "kvtransfer/b/b.h"' >"$tree/kvtransfer/a/a.h"
echo '#include "kvtransfer/a/a.h"' >"$tree/kvtransfer/b/b.h"
expect_failure "a circle between folders" "folders include each other in a circle: kvtransfer/a → kvtransfer/b → kvtransfer/a" \
  in_tree python3 tests/lint/check_tree.py
rm -r "$tree/kvtransfer"
# Types of one name in an anonymous namespace, or in namespaces of other names, are different types.
mkdir "$tree"/{lower,upper}
cat >"$tree/lower/lower.h" <<'CODE'
#pragma once
namespace baton {
struct Part;
enum class Part : char { kOne = '{' };
namespace {
struct Hidden {};
}  // namespace
}  // namespace baton
CODE
cat >"$tree/upper/upper.h" <<'CODE'
#pragma once
namespace baton::upper {
class Part final {};
}  // namespace baton::upper
namespace baton {
namespace {
struct Hidden {};
}  // namespace
template <class T>
class [[nodiscard]] Part final : public std::vector<T> {
};
}  // namespace baton
CODE
expect_failure "two types of one name" \
  "upper/upper.h:10: lower/lower.h:4 defines another baton::Part; one program may link both: rename one" \
  in_tree python3 tests/lint/check_tree.py
output=$(in_tree python3 tests/lint/check_tree.py)
if [[ $output == *Hidden* || $output == *upper::Part* ]]; then
  failures=$((failures + 1))
  printf 'types of one name that differ: expected no problem with them; the output is:\n%s\n' "$output"
fi
echo '}' >>"$tree/lower/lower.h"
expect_failure "braces that do not match" "lower/lower.h:1: the braces do not match" in_tree python3 tests/lint/check_tree.py
rm -r "$tree"/{lower,upper}
mkdir -p "$tree/kernels/cuda/exchange"
echo '// While a copy is under way, the rank adds the numbers of its slice.' >"$tree/kernels/cuda/exchange/slots.h"
expect_failure "a word of our own in the exchange" 'slots.h:1: "under way": write "in flight"' \
  in_tree python3 tests/lint/check_tree.py
expect_failure "numbers that are elements" 'slots.h:1: "numbers": write "elements"' \
  in_tree python3 tests/lint/check_tree.py
rm -r "$tree/kernels"
expect_failure "tidy without files" "no file to look at" in_tree ./dev tidy
expect_failure "fuzzers without fuzzers" "there is no fuzzer" in_tree ./dev fuzz 1
expect_failure "fuzzers of a name that none has" "there is no fuzzer" in_tree ./dev fuzz 1 nobody
expect_failure "benchmarks without benchmarks" "there is no benchmark" in_tree ./dev bench
expect_failure "benchmarks of a name that none has" "there is no benchmark" in_tree ./dev bench nobody
printf '# no entry\n' >"$tree/tests/mutation/mutations.txt"
expect_failure "mutations without entries" "mutations.txt has no entry" in_tree python3 tests/mutation/mutate.py check
expect_failure "planting no mutation" "mutations.txt has no entry" in_tree ./dev mutate
expect_failure "tests without tests" "No tests were found" in_tree ./dev test
expect_failure "tests of a label that none has" "No tests were found" in_tree ./dev test -L nobody
expect_failure "sanitized tests without tests" "No tests were found" in_tree ./dev asan

# A stand-in of `dev` whose verbs all succeed and find no test.
stand_in true_dev 'echo "No tests were found!!!"'
cp "$tree/bin/true_dev" "$tree/dev"
# The steps that run tests: `./dev test`, `./dev asan` and `./dev tsan`.
expect_failure "CI without tests" " passed, 4 failed" \
  in_tree bash -c 'sed -i "/fuzz/d; /kernels.cuda/,/^fi/d" .ci/run && .ci/run'
# A stand-in of `dev` whose verbs all succeed and run tests.
stand_in true_dev 'echo "100% tests passed, 0 tests failed out of 7"'
cp "$tree/bin/true_dev" "$tree/dev"
if ! output=$(in_tree .ci/run 2>&1) || [[ $output != *" passed, 0 failed"* ]]; then
  failures=$((failures + 1))
  printf 'CI with tests that pass: expected a success; the output is:\n%s\n' "$output"
fi

((failures == 0)) || exit 1
echo "every check that had nothing to check failed"
