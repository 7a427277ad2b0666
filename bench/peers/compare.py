#!/usr/bin/env python3
"""Compares Baton's engine with llama.cpp: same GGUF file, same number of threads, alternating runs.

Each case runs several times on each side. The best run of each side counts, because other load on
the machine can only make a run slower. Prints JSON: the figures, their ratios and the least ratio
wanted of each case. The exit status is 1 when a ratio is below the one wanted.

  python3 -m venv VENV && VENV/bin/pip install llama-cpp-python==0.3.36 numpy
  bench/peers/compare.py --model FILE.gguf --bench build/cpu/bin/engine_bench --python VENV/bin/python
"""

import argparse
import json
import os
import platform
import subprocess
import sys

CASES = [
    # name, streams, prompt tokens, output tokens, the figure compared, the least ratio wanted
    ("one stream", 1, 16, 128, "decode_tok_s", 1.0),
    ("eight streams", 8, 16, 64, "decode_tok_s", 1.5),
    ("prompt of 512", 1, 512, 1, "prefill_tok_s", 2.5),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--bench", default="build/cpu/bin/engine_bench")
    parser.add_argument("--python", default=sys.executable, help="a Python interpreter that has llama_cpp")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wrap", default="", help="a command that is put before each measurement's command, such as taskset")
    return parser.parse_args()


def measure(command, wrap):
    done = subprocess.run(wrap.split() + command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"compare: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def main():
    args = parse()
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_peer.py")
    results = []
    for name, streams, prompt, output, figure, wanted in CASES:
        options = ["--model", args.model, "--threads", str(args.threads)]
        our_case = ["--cases", f"{streams}x{prompt}x{output}"]
        their_case = ["--streams", str(streams), "--prompt", str(prompt), "--output", str(output)]
        ours, theirs = [], []
        for _ in range(args.rounds):
            ours.append(measure([args.bench] + options + our_case, args.wrap)[figure])
            theirs.append(measure([args.python, peer] + options + their_case, args.wrap)[figure])
        results.append({
            "case": name,
            "figure": figure,
            "baton": round(max(ours), 1),
            "llama_cpp": round(max(theirs), 1),
            "ratio": round(max(ours) / max(theirs), 2),
            "wanted": wanted,
            "baton_runs": [round(x, 1) for x in ours],
            "llama_cpp_runs": [round(x, 1) for x in theirs],
        })
        last = results[-1]
        print(f"{name}: {last['baton']} against {last['llama_cpp']} tok/s, "
              f"{last['ratio']}x (wanted {wanted}x)", file=sys.stderr)
    setup = {"processor": processor(), "threads": args.threads, "rounds": args.rounds,
             "model": os.path.basename(args.model)}
    print(json.dumps({"setup": setup, "results": results}, indent=2))
    return 0 if all(result["ratio"] >= result["wanted"] for result in results) else 1


sys.exit(main())
