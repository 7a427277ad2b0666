#!/usr/bin/env python3
"""Checks sizes, words, include rules and metric names, which compilers do not check.

Prints "file:line: problem" for each problem and then exits with status 1."""
import os
import re
import subprocess
import sys

from cmake_targets import GENERATED, Targets
from type_names import defined_types

SOURCES = (".h", ".cc", ".cu", ".cuh")
TEXTS = (".proto", ".md", ".txt", ".cmake", ".yaml", ".sh")
FILE_LINES = 500
CUDA_FILE_LINES = 600
INTERFACE_LINES = 120  # lines of code in a header with three or more pure virtual methods
FUNCTION_LINES = 80
MAIN_LINES = 15
WORKER_FOLDER_LINES = 950

WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\b[Ff]or now\b")
# Words of our own for what the field has a term for, and the term.
TERMS = [
    (re.compile(r"\bkMost[A-Z]\w*"), "kMax…"),
    (re.compile(r"\bgbps\b"), "gigabytes_per_second"),
    (re.compile(r"\bLook(out|For)\w*"), "busy-poll"),
    (re.compile(r"\bSoften\w*"), "softmax"),
    (re.compile(r"\b(Fetcher|Attender)s?\b"), "producer warp, consumer warp"),
    (re.compile(r"\b(PutShare|LayDownTile)\w*"), "store, epilogue"),
    (re.compile(r"\bAddUp\b"), "combine"),
    (re.compile(r"\bfew_rows\w*"), "skinny"),
    (re.compile(r"\bmost_[a-z]\w*|\bMost[A-Z]\w*\("), "max_…, Max…"),
    (re.compile(r"\b(WorkerHub|RouterLink|HubLink)\w*"), "WorkerLink"),
    (re.compile(r"\bkF8\b"), "FP8"),
    (re.compile(r"\b([Tt]ak(e|es|en|ing) over|[Tt]ake-over|TakeOver\w*|[Ll]one)\b"), "serve alone"),
    (re.compile(r'(?<="| )(?<![Tt]here )is no (?!longer\b|more\b)\w+(?=[^"]*")'), "is not a …"),
]
# Forms that a reader must read twice, and the plain form.
RIDDLES = [
    (re.compile(r"\b[Tt]hose who\b"), "the noun"),
    (re.compile(r"\b[Oo]f which\b"), "two sentences"),
    (re.compile(r"\b[Ss]o many\b"), "the number, or \"too many\""),
]
# Words of our own that only these parts of the tree must not use, where no other meaning of them occurs.
PLAIN = ("kernels/cuda/dma/", "kernels/cuda/exchange/", "kernels/cuda/step/",
         "kernels/cuda/notes/dma.md", "kernels/cuda/notes/exchange.md")
PLAIN_TERMS = [
    (re.compile(r"\b[Uu]nder way\b|\w*under_way\w*|\w*UnderWay\w*"), "in flight"),
    (re.compile(r"\b[Nn]umbers\b(?! of (blocks|layers|ranks|rows|tokens)\b)|\bk\w*Numbers\w*"), "elements"),
    (re.compile(r"\b[Bb]ehind\b|\bk\w*Behind\b"), "after, next; lags; pipeline depth"),
    (re.compile(r"\b[Hh]al(f|ves) of the slots\b"), "slot buffer"),
    (re.compile(r"\b[Ff]oreseen\b"), "planned"),
    (re.compile(r"\b[Ss]ingly\b"), "one at a time"),
    (re.compile(r"\b[Ss]etback\b"), "failure"),
    (re.compile(r"\w+Of(Sm|Rank|Warp|Block|Step)\b"), "…PerSm, …PerRank, …"),
    (re.compile(r"(//|[.;:]) Of [a-z]"), "a sentence with the subject first"),
]
# In these parts of the tree, the folders must not include each other in a circle. The part's own folder counts
# as one of them, or not: kvtransfer/ has both the contract below the transports and the interface of the whole,
# and router/ both the vocabulary below all folders and the service above them.
LAYERED = {"kernels/cuda": True, "kvtransfer": False, "router": False}
CELL_LENGTH = 160  # of a table in Markdown
CONFLICT = re.compile(r"^(<<<<<<<|>>>>>>>) ")
FILE_NAMES = re.compile(r"(utils?|helpers?|misc|common)\.(h|cc|cu|cuh)$")
INCLUDE = re.compile(r'^\s*#include\s+([<"])([^>"]+)[>"]')
PARSE = re.compile(r"\b[Jj]son(::|\.)(sax_)?parse\(")
# safetensors_file.cc may parse: it builds no nested values, so a deep document cannot harm it.
MAY_PARSE = re.compile(r"^common/base/json\.cc$|^common/model/safetensors_file\.cc$|^(tests|bench)/")
METRIC = re.compile(r"\b(?:baton|process)(?:_[a-z0-9]+)+\b")
METRIC_PARTS = ("", "_bucket", "_sum", "_count")
MAY_INCLUDE_GENERATED = re.compile(
    r"(_service|_client|_server|_wire)\.(h|cc)$|^common/rpc/|^common/config/|^tests/|^bench/")

problems = []


def complain(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def check_sizes(path, lines):
    limit = CUDA_FILE_LINES if path.endswith(".cu") else FILE_LINES
    if os.path.basename(path) == "main.cc":
        limit = MAIN_LINES
    if len(lines) > limit:
        complain(path, len(lines), f"has {len(lines)} lines; the cap is {limit}")
    if path.endswith(".h") and not path.startswith("tests/"):
        abstract = sum(bool(re.search(r"\) (const )?= 0;", line)) for line in lines)
        code = sum(bool(line.strip()) and not line.strip().startswith("//") for line in lines)
        if abstract >= 3 and code > INTERFACE_LINES:
            complain(path, 1, f"the interface has {code} lines of code; the cap is {INTERFACE_LINES}")


def check_functions(path, lines):
    """Checks the lengths of functions. In clang-format's layout the closing brace of a function has the
    indentation of the function's first line."""
    for end, line in enumerate(lines):
        found = re.match(r"^( {0,4})\}$", line)
        if not found:
            continue
        indent = found.group(1)
        begin = end - 1
        while begin >= 0:
            text = lines[begin]
            if text.startswith(indent) and len(text) > len(indent) and text[len(indent)] not in " })#/":
                break
            begin -= 1
        head = lines[begin].strip() if begin >= 0 else ""
        if re.match(r"(class|struct|enum|union|namespace|extern|public|private|protected)\b", head):
            continue
        if end - begin + 1 > FUNCTION_LINES:
            complain(path, begin + 1, f"the function has {end - begin + 1} lines; the cap is {FUNCTION_LINES}")


def check_includes(path, lines, targets):
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        quote, target = found.groups()
        if GENERATED.match(target) and not MAY_INCLUDE_GENERATED.search(path):
            complain(path, number, f"only *_service, *_client, *_server, *_wire and common/rpc may include the generated {target}")
        # Precompiled headers are part of the build, not of a module.
        problem = None if path.startswith("cmake/") else targets.problem(path, target)
        if problem:
            complain(path, number, problem)
        source = re.sub(r"(\.grpc)?\.pb\.h$", ".proto", target)
        if quote == '"' and not os.path.exists(source):
            complain(path, number, f"{target} does not exist; an include path starts at the repository's root")


def circles_between_folders(texts):
    """Returns a source and "A → B → A" for each circle between folders of a layered part of the tree."""
    def counts(folder, part):
        return folder.startswith(part + "/") or (folder == part and LAYERED[part])

    uses = {}  # folder → included folder → a source that includes it
    for path, lines in texts.items():
        folder = os.path.dirname(path)
        part = next((part for part in LAYERED if counts(folder, part)), None)
        if part is None or not path.endswith(SOURCES):
            continue
        for line in lines:
            found = INCLUDE.match(line)
            target = os.path.dirname(found.group(2)) if found else ""
            if target != folder and counts(target, part):
                uses.setdefault(folder, {}).setdefault(target, path)
    circles = []
    for start in sorted(uses):
        ways, seen = [[start]], set()
        while ways:
            way = ways.pop()
            for target in uses.get(way[-1], {}):
                if target == start and start == min(way):
                    circles.append((uses[way[-1]][start], " → ".join(way + [start])))
                elif target not in seen:
                    seen.add(target)
                    ways.append(way + [target])
    return circles


def check_types(texts):
    """Checks that no two definitions in the product have the same qualified name."""
    first = {}  # path and line, by name
    for path, lines in texts.items():
        if not path.endswith(SOURCES) or path.startswith(("tests/", "bench/")):
            continue
        types = defined_types(lines)
        if types is None:
            complain(path, 1, "the braces do not match, so that the types in this file are unknown")
        for name, line in types or []:
            if name in first:
                complain(path, line, f"{first[name]} defines another {name}; one program may link both: rename one")
            first.setdefault(name, f"{path}:{line}")


def check_words(path, lines):
    for number, line in enumerate(lines, 1):
        found = WORDS.search(line)
        if found:
            complain(path, number, f"the word \"{found.group(0)}\" is not allowed")
        if "getenv(" in line and not path.startswith("common/config/") and not path.startswith("tests/"):
            complain(path, number, "getenv is allowed only in common/config")
        if PARSE.search(line) and not MAY_PARSE.search(path):
            complain(path, number, "parse JSON with common/base/json.h, which limits its depth")
        for word, term in TERMS:
            found = word.search(line)
            if found:
                complain(path, number, f"\"{found.group(0)}\": the field's term is \"{term}\"")
        for word, term in PLAIN_TERMS if path.startswith(PLAIN) else []:
            found = word.search(line)
            if found:
                complain(path, number, f"\"{found.group(0)}\": write \"{term}\"")
        for word, plain in RIDDLES:
            found = word.search(line)
            if found:
                complain(path, number, f"\"{found.group(0)}\" makes a riddle; write {plain}")
        if CONFLICT.match(line):
            complain(path, number, "a merge conflict that is not resolved")
        if ".detach()" in line:
            complain(path, number, "a thread must not be detached")


def check_tables(path, lines):
    for number, line in enumerate(lines, 1):
        if not line.startswith("|"):
            continue
        longest = max(len(cell.strip()) for cell in line.strip().strip("|").split("|"))
        if longest > CELL_LENGTH:
            complain(path, number, f"a table cell of {longest} characters; the cap is {CELL_LENGTH}")


def check_source(path, lines, targets):
    if FILE_NAMES.search(os.path.basename(path)):
        complain(path, 1, "the file name does not describe the content; name the file after its main type")
    if path.endswith((".h", ".cuh")) and "#pragma once" not in lines:
        complain(path, 1, "has no #pragma once")
    check_sizes(path, lines)
    check_functions(path, lines)
    check_includes(path, lines, targets)
    check_words(path, lines)


def check_metric_names(texts):
    """Checks that a *_probe.cc declares every metric that tests, scripts, manifests and documents name."""
    declared, built, used = set(), set(), []
    for path, lines in texts.items():
        for number, line in enumerate(lines, 1):
            names = METRIC.findall(line)
            if path.endswith("_probe.cc"):
                declared.update(name + part for name in names for part in METRIC_PARTS)
            elif path.endswith(("CMakeLists.txt", ".cmake")) or path == "dev":
                built.update(names)
            elif path.startswith(("tests/", "deploy/")) or path.endswith(".md"):
                used.extend((path, number, name) for name in names if name.startswith("baton"))
    for path, number, name in used:
        generated = name.startswith("baton_tests_")  # build targets, one for each test label
        if name not in declared | built and not generated and not path.startswith("tests/unit/metrics/"):
            complain(path, number, f"no *_probe.cc declares a metric {name}")


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"],
                            check=True, capture_output=True, text=True).stdout.split("\n")
    texts = {}
    for path in listed:
        if not os.path.isfile(path) or path.startswith(("tests/data/", "tests/fuzz/corpus/")):
            continue
        if path.endswith(SOURCES + TEXTS) or path == "dev":
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read().split("\n")[:-1]
    targets = Targets(texts)
    folder_lines = {}
    sources = 0
    for path, lines in texts.items():
        if path.endswith(SOURCES):
            sources += 1
            check_source(path, lines, targets)
            folder = path.split("/")[0]
            folder_lines[folder] = folder_lines.get(folder, 0) + len(lines)
        else:
            check_words(path, lines)
            if path.endswith(".md"):
                check_tables(path, lines)
    for folder in ("prefill_worker", "decode_worker"):
        if folder_lines.get(folder, 0) > WORKER_FOLDER_LINES:
            complain(folder, 1, f"has {folder_lines[folder]} lines; the cap is {WORKER_FOLDER_LINES}")
    check_metric_names(texts)
    check_types(texts)
    for path, circle in circles_between_folders(texts):
        complain(path, 1, f"folders include each other in a circle: {circle}")
    if sources == 0:
        complain("tests/lint/check_tree.py", 1, "git lists no sources to check")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
