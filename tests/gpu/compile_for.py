#!/usr/bin/env python3
"""Compiles the kernels for GPU architectures for which no test runs here.

usage: compile_for.py BUILD_FOLDER [--architecture N …] [--within SECONDS]

BUILD_FOLDER is a configured Ninja build with the CUDA backend. Without --within, compiles every source of
kernels/cuda to machine code for each architecture (all supported ones without --architecture), and prints the
processor time and the size of the objects for each. With --within, compiles to PTX, which takes a fraction of the
time, for one architecture, another one at each commit: the sources that the latest commit of kernels/cuda changed,
then others, beginning with another one at each commit. Sources that are not compiled in time are named. Exits with
status 1 when a source does not compile or none was compiled in time, and with 2 when there is none."""

import argparse
import concurrent.futures
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# The architectures of BatonCuda.cmake, in the terms of nvcc.
ARCHITECTURES = ("80", "86", "89", "90a", "100", "103", "120")
# The build itself compiles for this one.
BUILT = "90a"
FOLDER = "kernels/cuda"
# Sources that are compiled at a commit at least: the next commit for the same architecture begins behind them.
STRIDE = 4
TARGET = re.compile(r"^--generate-code=arch=compute_\w+,code=\[?[\w,]+\]?$")


def git(*arguments):
    return subprocess.run(("git",) + arguments, check=True, capture_output=True, text=True).stdout


def commands(build):
    """{source below the tree: its command of nvcc} of all kernels."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        source = os.path.relpath(entry["file"])
        if source.startswith(FOLDER + "/") and source.endswith(".cu"):
            found[source] = shlex.split(entry["command"])
    return found


def command_for(command, architecture, machine_code, out):
    """The command with another architecture and another object."""
    code = f"sm_{architecture}" if machine_code else f"compute_{architecture}"
    target = f"--generate-code=arch=compute_{architecture},code=[{code}]"
    if not any(TARGET.match(word) for word in command):
        raise ValueError(f"the command has no architecture to replace: {shlex.join(command)}")
    result = [target if TARGET.match(word) else word for word in command]
    result[result.index("-o") + 1] = out
    if "-MF" in result:
        result[result.index("-MF") + 1] = out + ".d"
    launcher = shutil.which("ccache")
    return [launcher] + result if launcher else result


def order(sources, changed, turn):
    """The changed sources, then the others from another place on at each turn."""
    ordered = sorted(sources)
    start = turn * STRIDE % len(ordered)
    others = ordered[start:] + ordered[:start]
    return [s for s in others if s in changed] + [s for s in others if s not in changed]


def compile_all(sources, build, architecture, machine_code, deadline):
    """Compiles in the given order. Returns {source: size of its object}, the names of those that failed, and of
    those for which there was no time."""
    sizes, failed, late = {}, [], []
    with tempfile.TemporaryDirectory() as folder:

        def run(source):
            out = os.path.join(folder, source.replace("/", "+") + ".o")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                late.append(source)
                return
            command = command_for(sources[source], architecture, machine_code, out)
            # A session of its own, so that nvcc's own processes end with it.
            with subprocess.Popen(command, cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  start_new_session=True) as process:
                try:
                    output, _ = process.communicate(timeout=left)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    late.append(source)
                    return
            if process.returncode != 0:
                print(f"ERROR: {source} does not compile for sm_{architecture}:\n{output}", flush=True)
                failed.append(source)
                return
            sizes[source] = os.path.getsize(out)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(run, sources))
    return sizes, failed, late


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--architecture", action="append", choices=ARCHITECTURES)
    parser.add_argument("--within", type=float)
    arguments = parser.parse_args()
    sources = commands(arguments.build)
    if not sources:
        print(f"compile_for.py: {arguments.build} compiles no source of {FOLDER}", file=sys.stderr)
        return 2
    architectures = arguments.architecture or ARCHITECTURES
    deadline = None
    if arguments.within is not None:
        others = [a for a in architectures if a != BUILT]
        turn = int(git("rev-list", "--count", "HEAD"))
        changed = set(git("log", "-1", "--name-only", "--pretty=format:", "--", FOLDER).split())
        architectures = [others[turn % len(others)]]
        sources = {s: sources[s] for s in order(sources, changed, turn // len(others))}
        deadline = time.monotonic() + arguments.within
    bad = False
    for architecture in architectures:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        sizes, failed, late = compile_all(sources, arguments.build, architecture, deadline is None, deadline)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        bad = bad or bool(failed) or not sizes
        print(f"sm_{architecture}: {len(sizes)} of {len(sources)} sources compiled to "
              f"{'machine code' if deadline is None else 'PTX'}, {len(failed)} failed; "
              f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.0f} s of processor time, "
              f"{sum(sizes.values()) / 2**20:.1f} MiB of objects", flush=True)
        if late:
            print(f"not compiled within {arguments.within:.0f} s: {' '.join(sorted(late))}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
