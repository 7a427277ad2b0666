#!/usr/bin/env python3
"""Plants the faults of mutations.txt one by one in a copy of the tree. A named test must catch each.

mutate.py check          checks that every entry still fits the tree, without a build
mutate.py list           prints the names and what each fault does
mutate.py run [name …]   plants all faults, or the named ones
mutate.py run K/N        plants the K-th of N parts of all faults, whose tests are in few binaries

README.md describes the format of an entry. Exits 1 when a fault survives or an entry is wrong."""
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = "tests/mutation/mutations.txt"
COPY = os.path.join(ROOT, "build", "mutation", "tree")
TEST_SECONDS = 300  # a test that hangs for longer counts as failed, so it has caught the fault


@dataclass
class Mutation:
    name: str
    line: int  # line number of the entry in mutations.txt
    what: str = ""
    file: str = ""
    test: str = ""
    filter: str = ""
    old: list = field(default_factory=list)
    new: list = field(default_factory=list)

    def old_text(self):
        return "\n" + "\n".join(self.old) + "\n"

    def new_text(self):
        return "\n" + "".join(line + "\n" for line in self.new)


class Wrong(Exception):
    """An invalid entry, or an entry whose fault cannot be tested. Somebody must correct the entry."""


def read_list():
    mutations = []
    in_entry = False  # an empty line ends an entry
    with open(os.path.join(ROOT, LIST), encoding="utf-8") as file:
        for number, line in enumerate(file.read().split("\n"), 1):
            head = re.fullmatch(r"\[([a-z0-9-]+)\]", line)
            if head:
                mutations.append(Mutation(head.group(1), number))
                in_entry = True
            elif not line or line.startswith("#"):
                in_entry = False
            elif not in_entry:
                raise Wrong(f"{LIST}:{number}: an entry must begin with [its-name], and an empty line ends it")
            elif line[0] in "-+":
                (mutations[-1].old if line[0] == "-" else mutations[-1].new).append(line[1:])
            else:
                read_word(mutations[-1], number, line)
    if not mutations:
        raise Wrong(f"{LIST} has no entry")
    return mutations


def read_word(mutation, number, line):
    words = line.split()
    if words[0] == "file:" and len(words) == 2:
        mutation.file = words[1]
    elif words[0] == "test:" and len(words) == 3:
        mutation.test, mutation.filter = words[1:]
    elif words[0] == "what:":
        mutation.what = line[len("what:"):].strip()
    else:
        raise Wrong(f"{LIST}:{number}: \"{line}\" is not one of: file: PATH; test: BINARY FILTER; "
                    "what: TEXT; -OLD LINE; +NEW LINE")


def declared_tests():
    """Returns the names of all test binaries, from the CMakeLists.txt files under tests/."""
    names = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "tests")):
        if "CMakeLists.txt" in files:
            with open(os.path.join(folder, "CMakeLists.txt"), encoding="utf-8") as file:
                names.update(re.findall(r"baton_test\((\w+)", file.read()))
    return names


def check(mutations):
    """Returns the problems of the list: entries that are incomplete, named twice or do not fit the tree."""
    problems = []
    names = set()
    tests = declared_tests()
    for mutation in mutations:
        where = f"{LIST}:{mutation.line}: {mutation.name}"
        if mutation.name in names:
            problems.append(f"{where}: another entry has the same name")
        names.add(mutation.name)
        if not (mutation.what and mutation.file and mutation.test and mutation.old):
            problems.append(f"{where}: an entry needs what:, file:, test: and at least one \"-\" line")
            continue
        if mutation.test not in tests:
            problems.append(f"{where}: there is no test {mutation.test}")
        path = os.path.join(ROOT, mutation.file)
        if not os.path.isfile(path):
            problems.append(f"{where}: there is no file {mutation.file}")
            continue
        with open(path, encoding="utf-8") as file:
            count = file.read().count(mutation.old_text())
        if count != 1:
            problems.append(f"{where}: its old lines occur {count} times in {mutation.file}; they must occur once")
        if mutation.old == mutation.new:
            problems.append(f"{where}: the new lines equal the old lines")
    return problems


def make_copy():
    """Copies the tree to COPY. Unchanged files there keep their times, so that little is rebuilt."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    wanted = {path for path in listed if path and os.path.isfile(os.path.join(ROOT, path))}
    for folder, folders, files in os.walk(COPY):
        if folder == COPY and "build" in folders:
            folders.remove("build")
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), COPY)
            if path not in wanted:
                os.remove(os.path.join(COPY, path))
    for path in wanted:
        source, target = os.path.join(ROOT, path), os.path.join(COPY, path)
        if not os.path.exists(target) or read_bytes(source) != read_bytes(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def build(command, tests):
    """Builds test binaries in the copy. Returns the end of the build's output when the build fails."""
    done = subprocess.run([*command, *tests], cwd=COPY, env=dict(os.environ, CCACHE_BASEDIR=COPY), text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return "" if done.returncode == 0 else "\n".join(done.stdout.split("\n")[-30:])


def passes(mutation):
    """Returns whether the entry's tests pass. Raises Wrong when the filter matches no test."""
    command = [os.path.join(COPY, "build/cpu/tests", mutation.test),
               f"--gtest_filter={mutation.filter}"]
    try:
        done = subprocess.run(command, cwd=COPY, text=True, errors="replace", timeout=TEST_SECONDS,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except subprocess.TimeoutExpired:
        return False
    if re.search(r"^\[=+\] Running 0 tests", done.stdout, re.MULTILINE):
        raise Wrong(f"{mutation.test} has no test {mutation.filter}")
    return done.returncode == 0


def plant(mutation):
    """Returns whether a test catches the fault. Raises Wrong when the code does not build or no test matches."""
    path = os.path.join(COPY, mutation.file)
    with open(path, encoding="utf-8") as file:
        before = file.read()
    try:
        write_text(path, before.replace(mutation.old_text(), mutation.new_text()))
        # The copy is configured: without the checks of ./dev, which would take longer than some tests.
        said = build(["ninja", "-C", "build/cpu", "-j", str(os.cpu_count())], [mutation.test])
        if said:
            raise Wrong(f"the code does not build with the fault:\n{said}")
        return not passes(mutation)
    finally:
        write_text(path, before)


def outcome_without_fault(mutation):
    """Returns what is wrong with the entry's tests; empty when there are tests and they pass."""
    try:
        if passes(mutation):
            return ""
    except Wrong as problem:
        return str(problem)
    return f"{mutation.test} --gtest_filter={mutation.filter} fails without the fault"


def run(mutations):
    make_copy()
    tests = sorted({mutation.test for mutation in mutations})
    begin = time.monotonic()
    print(f"building {len(tests)} tests without a fault in {COPY}", flush=True)
    said = build(["./dev", "build", "cpu"], tests)
    if said:
        raise Wrong(f"the tree does not build without a fault:\n{said}")
    print(f"built in {time.monotonic() - begin:.0f} s; running them without a fault", flush=True)
    # All tests run here, before any fault is planted: later the copy's binaries may contain a fault.
    before = {(mutation.test, mutation.filter): outcome_without_fault(mutation)
              for mutation in mutations}
    print(f"{time.monotonic() - begin:.0f} s until the first of {len(mutations)} faults", flush=True)
    table = []
    for number, mutation in enumerate(mutations, 1):
        begin = time.monotonic()
        try:
            if before[mutation.test, mutation.filter]:
                raise Wrong(before[mutation.test, mutation.filter])
            outcome = "caught" if plant(mutation) else "SURVIVED"
        except Wrong as problem:
            outcome = f"WRONG: {problem}"
        table.append((mutation, outcome))
        print(f"{number:>4}/{len(mutations)} {mutation.name:<44} {time.monotonic() - begin:5.0f} s  {outcome}", flush=True)
    return summarise(table)


def summarise(table):
    """Prints the faults that no test caught and what to do about them. Returns the exit status."""
    bad = [(mutation, outcome) for mutation, outcome in table if outcome != "caught"]
    for mutation, outcome in bad:
        print(f"\n{mutation.name} ({LIST}:{mutation.line}): {mutation.what}\n  {mutation.file}\n"
              f"  {mutation.test} --gtest_filter={mutation.filter}\n  {outcome}")
    survived = sum(outcome == "SURVIVED" for _, outcome in table)
    wrong = len(bad) - survived
    if survived:
        print("\nTo do for each that SURVIVED: plant it by hand, see why the test passes, and improve the test or name "
              "one that fails.\nIf the fault changes nothing that anyone can observe, the guard is unnecessary: remove both.")
    if wrong:
        print("\nTo do for each that is WRONG: correct its entry.")
    print(f"\n{len(table) - len(bad)} caught, {survived} survived" + (f", {wrong} wrong" if wrong else ""))
    return 1 if bad else 0


def chosen(mutations, names):
    """The mutations of these names, of the part "K/N", or all. Those of one test are neighbours, and among them
    those of one file: what the next one needs built is mostly built."""
    mutations = sorted(mutations, key=lambda mutation: (mutation.test, mutation.file, mutation.line))
    part = re.fullmatch(r"(\d+)/(\d+)", names[0]) if len(names) == 1 else None
    if part:
        number, parts = int(part[1]), int(part[2])
        if not 1 <= number <= parts:
            raise Wrong(f"there is no part {names[0]}")
        return mutations[len(mutations) * (number - 1) // parts:len(mutations) * number // parts]
    unknown = set(names) - {mutation.name for mutation in mutations}
    if unknown:
        raise Wrong(f"there is no mutation {', '.join(sorted(unknown))} in {LIST}")
    return [mutation for mutation in mutations if mutation.name in names or not names]


def main(arguments):
    verb = arguments[0] if arguments else ""
    if verb not in ("check", "list", "run"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        mutations = read_list()
        if verb == "list":
            for mutation in mutations:
                print(f"{mutation.name:<44} {mutation.what}")
            return 0
        problems = check(mutations)
        if problems or verb == "check":
            print("\n".join(problems), end="\n" if problems else "")
            return 1 if problems else 0
        return run(chosen(mutations, arguments[1:]))
    except Wrong as problem:
        print(f"mutate: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
