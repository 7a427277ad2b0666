#!/usr/bin/env python3
"""Compares hand-offs with the raw link in one run: tcp with iperf3 over loopback, shm with plain copies.

raw_link.py BIN/kv_transfer_bench [ROUNDS [SECONDS]]

iperf3 and kv_transfer_bench alternate, because the machine's speed changes. Needs iperf3. Prints one JSON
object. A ratio is the median of the hand-offs' rates divided by the median of the raw rates; for shm, of the
ratios in each round."""
import json
import socket
import statistics
import subprocess
import sys
import time


def iperf_rate(seconds):
    """The rate of one iperf3 stream over loopback in GB/s."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen(["iperf3", "-s", "-1", "-p", port, "-B", "127.0.0.1"], stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    client = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", str(seconds), "-J"],
                            capture_output=True, text=True, check=True)
    server.wait(timeout=30)
    return json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"] / 8e9


# What distinguishes the cases of kv_transfer_bench.
KEY = ("transport", "checksums", "authenticated", "ranks", "block_bytes", "blocks")


def main():
    bench = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    iperf = []
    cases = {}
    for _ in range(rounds):
        iperf.append(iperf_rate(max(1, round(seconds))))
        run = subprocess.run([bench, str(seconds)], capture_output=True, text=True, check=True)
        for case in json.loads(run.stdout)["cases"]:
            key = tuple(case[name] for name in KEY)
            cases.setdefault(key, []).append(case)
    raw_tcp = statistics.median(iperf)
    result = {"benchmark": "raw_link", "rounds": rounds, "iperf3_gb_per_s": round(raw_tcp, 3), "cases": []}
    for key, runs in cases.items():
        named = dict(zip(KEY, key))
        rate = statistics.median(run["gb_per_s"] for run in runs)
        if named["transport"] == "tcp":
            ratio = rate / raw_tcp
        else:
            ratio = statistics.median(run["gb_per_s"] / run["raw_copy_gb_per_s"] for run in runs)
        result["cases"].append({
            **named,
            "gb_per_s": round(rate, 3), "ratio_to_raw": round(ratio, 3),
            **{name: statistics.median(run[name] for run in runs)
               for name in ("sender_cpu_s_per_gib", "receiver_cpu_s_per_gib")}})
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
