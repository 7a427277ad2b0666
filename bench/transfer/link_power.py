#!/usr/bin/env python3
"""Measures how much a GPU at its power limit slows down while it copies, by the interval of copies.

One process, two GPUs, PyTorch. GEMMs run on the first GPU without a pause. A thread copies to the
second GPU ("far") or within the first one ("near") at the same time. Prints a line for each run:
GEMM rate and GEMM time; power (W), SM clock (MHz) and temperature in the middle of the run.
"""
import subprocess
import threading
import time

import torch

ROWS, INNER, OUTPUTS = 8192, 4096, 28672
COPY_BYTES = 5_400_000  # the KV bytes that a prefill of Llama-3.1-8B produces in a millisecond
ROUNDS = 3

x = torch.randn(ROWS, INNER, device="cuda:0", dtype=torch.bfloat16)
weight = torch.randn(OUTPUTS, INNER, device="cuda:0", dtype=torch.bfloat16).t()
out = torch.empty(ROWS, OUTPUTS, device="cuda:0", dtype=torch.bfloat16)
source = torch.empty(1 << 30, device="cuda:0", dtype=torch.uint8)
far = torch.empty(1 << 30, device="cuda:1", dtype=torch.uint8)
near = torch.empty(1 << 30, device="cuda:0", dtype=torch.uint8)
computing = torch.cuda.Stream("cuda:0", priority=0)
copying = torch.cuda.Stream("cuda:0", priority=-1)


def copy_again_and_again(to, interval, size, stop):
    due = time.perf_counter()
    while not stop.is_set():
        with torch.cuda.stream(copying):
            to[:size].copy_(source[:size], non_blocking=True)
        due += interval
        time.sleep(max(0, due - time.perf_counter()))


def state():
    query = "--query-gpu=power.draw.instant,clocks.sm,temperature.gpu"
    command = ["nvidia-smi", "-i", "0", query, "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def measure(name, to=None, interval=0.0, size=0, seconds=3.0):
    stop = threading.Event()
    copier = threading.Thread(target=copy_again_and_again, args=(to, interval, size, stop))
    if to is not None:
        copier.start()
    products, ends, seen = 0, [], ""
    with torch.cuda.stream(computing):
        for _ in range(60):
            torch.mm(x, weight, out=out)
        begin = torch.cuda.Event(enable_timing=True)
        begin.record()
        started = time.time()
        while time.time() - started < seconds:
            for _ in range(40):
                torch.mm(x, weight, out=out)
            products += 40
            ends.append(torch.cuda.Event(enable_timing=True))
            ends[-1].record()
            if len(ends) > 2:
                ends[-3].synchronize()
            if not seen and time.time() - started > seconds / 2:
                seen = state()
        ends[-1].synchronize()
    stop.set()
    if to is not None:
        copier.join()
    torch.cuda.synchronize()
    each = begin.elapsed_time(ends[-1]) / products
    rate = 2 * ROWS * INNER * OUTPUTS / each / 1e9
    print(f"{name:22} {rate:.1f} TFLOP/s  {each:.4f} ms  {seen}", flush=True)


measure("warm", seconds=6)
for _ in range(ROUNDS):
    measure("none")
    measure("far 5.4MB/1ms", far, 0.001, COPY_BYTES)
    measure("none")
    measure("far 54MB/10ms", far, 0.01, 10 * COPY_BYTES)
    measure("none")
    measure("far 270MB/50ms", far, 0.05, 50 * COPY_BYTES)
    measure("none")
    measure("far 1GB/200ms", far, 0.2, 198 * COPY_BYTES)
    measure("none")
    measure("near 5.4MB/1ms", near, 0.001, COPY_BYTES)
    measure("far 4KB/1ms", far, 0.001, 4096)
print(subprocess.run(["nvidia-smi", "nvlink", "-gLowPwrInfo"], capture_output=True, text=True).stdout)
