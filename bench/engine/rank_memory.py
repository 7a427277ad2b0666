#!/usr/bin/env python3
"""Compares the memory of each rank of a group with the memory of one rank that holds the whole model.

  rank_memory.py ENGINE_BENCH MODEL [--dummy] [--shapes 1x1,2x1,4x1,1x2]

Runs engine_bench for each shape TENSORxPIPELINE and reads /proc/PID/smaps_rollup of its processes.
The memory of a rank is what it does not share with other processes, plus its resident pages of
files, of which a rank reads its own slice only. Prints one JSON object for each shape. `share` is
the memory of the largest rank times the number of ranks, divided by the memory of one rank.
"""
import argparse
import json
import subprocess
import time


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as file:
        return [int(child) for child in file.read().split()]


def memory(pid):
    """MiB that the process alone holds, and MiB of all its resident pages of files."""
    private = 0
    files = 0
    mapped_file = False
    with open(f'/proc/{pid}/smaps') as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(':'):
                mapped_file = len(words) > 5 and words[5].startswith('/') and words[3] != '00:00' \
                    and not words[5].startswith(('/memfd:', '/dev/'))
            elif words[0] == 'Rss:' and mapped_file:
                files += int(words[1])
            elif words[0] in ('Private_Clean:', 'Private_Dirty:') and not mapped_file:
                private += int(words[1])
    return private / 1024, files / 1024


def measure(bench, model, dummy, shape):
    tensor, pipeline = (int(degree) for degree in shape.split('x'))
    command = [bench, '--model', model, '--threads', '1', '--tensor', str(tensor), '--pipeline',
               str(pipeline), '--cases', '4x64x64'] + (['--dummy', '1'] if dummy else [])
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    largest = {}
    while process.poll() is None:
        for pid in [process.pid, *children(process.pid)]:
            try:
                now = memory(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            largest[pid] = max(largest.get(pid, (0, 0)), now, key=sum)
        time.sleep(0.05)
    if process.returncode != 0 or len(largest) < tensor * pipeline:
        raise SystemExit(f'{" ".join(command)} ended with {process.returncode}')
    ranks = sorted(largest.values(), key=sum)[-tensor * pipeline:]
    return [{'private_mib': round(private, 1), 'files_mib': round(files, 1)}
            for private, files in ranks]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bench')
    parser.add_argument('model')
    parser.add_argument('--dummy', action='store_true')
    parser.add_argument('--shapes', default='1x1,2x1,4x1,1x2')
    arguments = parser.parse_args()
    alone = sum(measure(arguments.bench, arguments.model, arguments.dummy, '1x1')[0].values())
    for shape in arguments.shapes.split(','):
        ranks = measure(arguments.bench, arguments.model, arguments.dummy, shape)
        largest = max(sum(rank.values()) for rank in ranks)
        print(json.dumps({'shape': shape, 'ranks': ranks, 'one_rank_mib': round(alone, 1),
                          'share': round(largest * len(ranks) / alone, 3)}), flush=True)


main()
