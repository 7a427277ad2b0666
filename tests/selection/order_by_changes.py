#!/usr/bin/env python3
"""Orders the tests or fuzzers of a build for a run that has not the time for all: those nearest to the latest
changes alternate with the others, of which each commit begins with other ones.

usage: order_by_changes.py BUILD_FOLDER SUBFOLDER <names, one per line

BUILD_FOLDER is a configured Ninja build, and SUBFOLDER/NAME in it the program of each name. Prints all names
in the order in which to build and run them. Exits with status 2 when there are none."""

import collections
import os
import re
import subprocess
import sys

# Changes up to this many seconds older than the newest commit count as the latest ones.
LATEST = 24 * 3600
# Programs for the changes between two in turn.
NEAR_IN_A_ROW = 2

OBJECT = re.compile(r"^(?:(?P<folder>.*)/)?CMakeFiles/[^/]+\.dir/(?P<file>.*)\.o$")


def source_of(object_file):
    """The path of a source, within the tree where it is a file of the tree; None for other files."""
    match = OBJECT.match(object_file)
    if match is None or "cmake_pch" in object_file:
        return None
    return os.path.normpath(os.path.join(match["folder"] or "", match["file"].replace("__/", "../")))


def touched(changed, sources):
    """The sources that the changed files touch: themselves; for a header the source of its name, or else all
    sources of its folder; for a .proto file what is generated from it."""
    by_folder = collections.defaultdict(set)
    by_file = collections.defaultdict(set)
    for source in sources:
        by_folder[os.path.dirname(source)].add(source)
        by_file[os.path.basename(source).split(".")[0]].add(source)
    result = set()
    for file in changed:
        twin = file[:-2] + ".cc" if file.endswith(".h") else file
        if twin in sources:
            result.add(twin)
        elif file.endswith(".h"):
            result |= by_folder[os.path.dirname(file)]
        elif file.endswith(".proto"):
            result |= by_file[os.path.basename(file).split(".")[0]]
    return result


def order(programs, changed, turn):
    """programs: {name: set of sources}; changed: paths; turn: a number. Returns all names."""
    users = collections.Counter(source for sources in programs.values() for source in sources)
    hits = touched(changed, set(users))

    def nearness(name):
        # A source in many programs says little about any of them, and large programs take long to compile.
        near = sum(1 / users[source] for source in programs[name] & hits)
        return near / max(1, len(programs[name]))

    near = sorted((name for name in programs if nearness(name) > 0), key=lambda name: (-nearness(name), name))
    start = turn % max(1, len(programs))
    in_turn = sorted(programs)[start:] + sorted(programs)[:start]
    result = []
    while len(result) < len(programs):
        for queue, count in ((near, NEAR_IN_A_ROW), (in_turn, 1)):
            result += [name for name in queue if name not in result][:count]
    return result


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def changed_files():
    """What differs from the main branch, and what the latest commits changed."""
    newest = int(run("git", "log", "-1", "--format=%ct"))
    files = set(run("git", "log", f"--since={newest - LATEST}", "--name-only", "--format=").split("\n"))
    files |= set(run("git", "diff", "--name-only", "HEAD").split("\n"))
    if subprocess.run(["git", "rev-parse", "-q", "--verify", "origin/main"], capture_output=True).returncode == 0:
        files |= set(run("git", "diff", "--name-only", "origin/main...HEAD").split("\n"))
    return files - {""}


def main():
    build, folder = sys.argv[1], sys.argv[2]
    programs = {}
    for name in sys.stdin.read().split():
        inputs = run("ninja", "-C", build, "-t", "inputs", f"{folder}/{name}").split("\n")
        programs[name] = {source for source in map(source_of, inputs) if source is not None}
    if not programs:
        print("order_by_changes.py: there are no programs to order", file=sys.stderr)
        return 2
    print("\n".join(order(programs, changed_files(), int(run("git", "rev-list", "--count", "HEAD")))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
