#!/usr/bin/env python3
"""Compares Baton's engine with llama.cpp: same GGUF file, same number of threads, alternating runs.

Each case runs several times on each side. The best run of each side counts, because other load on
the machine can only make a run slower. Prints JSON: the figures, their ratios, the least ratio and
the goal of each case, and the share of this machine's bound that Baton reaches. The bound is what
the threads can read from memory or, if that is lower, the multiply-adds that the instructions of
the path allow (cpu_bounds_bench). The exit status is 1 when a ratio is below the least one.

  python3 -m venv VENV && VENV/bin/pip install llama-cpp-python==0.3.36 numpy
  bench/peers/compare.py --model FILE.gguf --python VENV/bin/python [--cpu_isa avx2]

README.md says how to build llama.cpp for the same instruction set as a forced path.
"""

import argparse
import json
import os
import platform
import subprocess
import sys

CASES = [
    # name, streams, prompt tokens, output tokens, the figure compared
    ("one stream", 1, 16, 128, "decode_tok_s"),
    ("eight streams", 8, 16, 64, "decode_tok_s"),
    ("prompt of 512", 1, 512, 1, "prefill_tok_s"),
]

# The least ratio and the goal of each case, by the path.
AVX2 = [(2.2, 2.6), (3.5, 4.8), (3.0, 4.0)]
WANTED = {
    "avx2": AVX2,
    "avx_vnni": AVX2,
    "avx512": [(2.2, 3.0), (3.7, 4.5), (3.8, 4.5)],
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--build", default="build/cpu", help="the build folder of Baton")
    parser.add_argument("--python", default=sys.executable, help="a Python interpreter that has llama_cpp")
    parser.add_argument("--cpu_isa", default="auto", help="the path of Baton: auto, avx512, avx_vnni or avx2")
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


def bound(run, machine, figure):
    """The most tokens per second that `machine` allows for the case of `run`, an engine_bench
    result, and what limits them."""
    layers, head = run["layer_products_per_row"], run["head_products_per_row"]
    if figure == "prefill_tok_s":  # a prompt needs logits only after its last token
        tokens, products = run["prompt"], run["prompt"] * layers + head
    else:
        tokens, products = run["streams"], run["streams"] * (layers + head)
    seconds = {"memory": run["weight_bytes"] / (machine["read_gb_s"] * 1e9),
               "products": products / (machine["dot_gmac_s"] * 1e9)}
    limit = max(seconds, key=seconds.get)
    return tokens / seconds[limit], limit


def compare(args, case, wanted, machine, path):
    name, streams, prompt, output, figure = case
    peer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_peer.py")
    engine = os.path.join(args.build, "bin", "engine_bench")
    options = ["--model", args.model, "--threads", str(args.threads)]
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(measure([engine, *options, "--cpu_isa", path,
                             "--cases", f"{streams}x{prompt}x{output}"], args.wrap))
        theirs.append(measure([args.python, peer, *options, "--streams", str(streams),
                               "--prompt", str(prompt), "--output", str(output)], args.wrap)[figure])
    best = max(run[figure] for run in ours)
    most, limit = bound(ours[0], machine, figure)
    least, goal = wanted
    result = {
        "case": name,
        "figure": figure,
        "device": ours[0]["device"],
        "baton": round(best, 1),
        "llama_cpp": round(max(theirs), 1),
        "ratio": round(best / max(theirs), 2),
        "least": least,
        "goal": goal,
        "bound": round(most, 1),
        "bound_by": limit,
        "share_of_bound": round(best / most, 2),
        "baton_runs": [round(run[figure], 1) for run in ours],
        "llama_cpp_runs": [round(x, 1) for x in theirs],
    }
    print(f"{name}, {result['device']}: {result['baton']} against {result['llama_cpp']} tok/s, "
          f"{result['ratio']}x (at least {least}x, goal {goal}x), {result['share_of_bound']:.0%} of "
          f"the bound by {limit}, {result['bound']} tok/s", file=sys.stderr)
    return result


def main():
    args = parse()
    bounds = [os.path.join(args.build, "bench", "cpu_bounds_bench"), "--cpu_isa", args.cpu_isa,
              "--threads", str(args.threads)]
    machine = measure(bounds, args.wrap)
    path = machine["cpu_isa"]
    if path not in WANTED:
        raise SystemExit(f"compare: no ratio is wanted for the path {path}; force one of {', '.join(WANTED)}")
    results = [compare(args, case, wanted, machine, path)
               for case, wanted in zip(CASES, WANTED[path])]
    setup = {"processor": processor(), "cpu_isa": path, "threads": args.threads, "rounds": args.rounds,
             "model": os.path.basename(args.model), "read_gb_s": machine["read_gb_s"],
             "dot_gmac_s": machine["dot_gmac_s"]}
    print(json.dumps({"setup": setup, "results": results}, indent=2))
    return 0 if all(result["ratio"] >= result["least"] for result in results) else 1


sys.exit(main())
