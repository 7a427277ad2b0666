#!/usr/bin/env python3
"""Compares hand-offs over the transport nccl with ncclSend and ncclRecv of the same bytes in one run.

raw_nccl.py BIN/kv_transfer_bench [ROUNDS [SECONDS [SENDER_DEVICE RECEIVER_DEVICE]]]

PyTorch's send and recv, one process for each of two GPUs, alternate with kv_transfer_bench. Needs PyTorch with NCCL
and two GPUs (cuda:0 and cuda:1 unless named). Prints one JSON object. A ratio is the median of the hand-offs' rates
divided by the median of the raw rates of the same number of bytes."""
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time

REPEATS = 21
WARM_UP = 3  # the first ones connect the two ranks


def run_rank(rank, device, port, sizes, results):
    """Sends (rank 0) or receives each size REPEATS times. Rank 1 puts the median rate in GB/s of each size."""
    import torch
    import torch.distributed

    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    move = torch.distributed.send if rank == 0 else torch.distributed.recv
    ready = torch.zeros(1, device=device)
    for size in sizes:
        data = torch.empty(size, dtype=torch.uint8, device=device)
        times = []
        for _ in range(REPEATS + WARM_UP):
            torch.distributed.all_reduce(ready)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            move(data, 1 - rank)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        if rank == 1:
            results.put((size, size / statistics.median(times[WARM_UP:]) / 1e9))
    torch.distributed.destroy_process_group()


def raw_rates(sizes, devices):
    """The rate in GB/s of each size in bytes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=run_rank, args=(rank, device, port, sizes, results))
             for rank, device in enumerate(devices)]
    for one in ranks:
        one.start()
    rates = dict(results.get(timeout=120) for _ in sizes)
    for one in ranks:
        one.join()
    return rates


def main():
    bench = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seconds = sys.argv[3] if len(sys.argv) > 3 else "0.3"
    devices = sys.argv[4:6] if len(sys.argv) > 5 else ["cuda:0", "cuda:1"]
    rates, raw = {}, {}
    for _ in range(rounds):
        run = subprocess.run([bench, seconds, *devices, "0", "nccl"], stdout=subprocess.PIPE, text=True, check=True)
        cases = json.loads(run.stdout)["cases"]
        for case in cases:
            rates.setdefault((case["blocks"], case["block_bytes"]), []).append(case)
        for size, rate in raw_rates([blocks * size for blocks, size in rates], devices).items():
            raw.setdefault(size, []).append(rate)
    result = {"benchmark": "raw_nccl", "rounds": rounds, "devices": devices, "cases": []}
    for (blocks, block_bytes), runs in rates.items():
        rate = statistics.median(run["gb_per_s"] for run in runs)
        raw_rate = statistics.median(raw[blocks * block_bytes])
        result["cases"].append({
            "blocks": blocks, "block_bytes": block_bytes, "gb_per_s": round(rate, 1), "raw_gb_per_s": round(raw_rate, 1),
            "stream_gb_per_s": round(statistics.median(run["stream_gb_per_s_p50"] for run in runs), 1),
            "raw_copy_gb_per_s": round(statistics.median(run["raw_copy_gb_per_s"] for run in runs), 1),
            "ratio_to_raw": round(rate / raw_rate, 3)})
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
