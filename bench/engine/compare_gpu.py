#!/usr/bin/env python3
"""Runs engine_bench of several trees, or with several settings, in turn on one GPU, and compares the medians.

  compare_gpu.py NAME='ENGINE_BENCH [FLAG…]' … [--rows decode,prompt] [--rounds 2] [--raw FILE]

Each run has random weights. A round runs the commands in their order, the next one in the reverse order. Prints a
JSON object for each case: milliseconds of a decode step or a prompt, or tokens a second of a whole run (unit), and
the ratio of each command to the first one; above 1 is slower. --raw writes the output of engine_bench with a name,
a row and a round in each line. --rows takes the names of ROWS below, or NAME:CASES, which replaces the row's cases.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'shapes')
DENSE, SMALL, MIXTURE = 'llama-3.1-8b', 'llama-3.2-1b', 'qwen3-30b-a3b'
FP8 = ['--weights', 'fp8']
# For each row: the shape, the flags, the cases of engine_bench, and how often a process repeats them.
ROWS = {
    'decode': (DENSE, [], '1x1024x64,64x2048x64,128x512x64,256x512x64', 1),
    'prompt': (DENSE, [], '1x2048x1,1x8192x1,1x32000x1', 5),
    'offline': (DENSE, [], '256x1000x1000', 1),
    'fp8': (DENSE, FP8, '1x1024x64,64x2048x64,1x8192x1', 1),
    'fp8_kv': (DENSE, [*FP8, '--kv', 'fp8'], '64x2048x64', 1),
    'fp8_offline': (DENSE, FP8, '256x1000x1000', 1),
    'fp8_kv_offline': (DENSE, [*FP8, '--kv', 'fp8'], '768x1000x1000', 1),
    '1b': (SMALL, [], '1x1024x64,64x2048x64,1x8192x1', 1),
    'mixture': (MIXTURE, [], '1x1024x64,64x2048x64,1x8192x1', 1),
    'mixture_fp8': (MIXTURE, FP8, '1x1024x64,64x2048x64,1x8192x1', 1),
    'resume': (DENSE, ['--emitted', '1000'], '1x1001x1', 5),
}


def value_of(line):
    """The case, the unit and the value of a line of engine_bench."""
    case = f"{line['streams']}x{line['prompt']}x{line['output']}"
    if line['output'] == 1:
        return case, 'ms', 1e3 * line['prefill_s']
    if line['output'] >= 128:
        return case, 'tokens/s', line['output_tok_s']
    # In a pipeline a step decodes a part of the sequences. A round of steps decodes all of them once.
    if line.get('pipeline', 1) > 1 and line['streams'] > 1 and 'full_decode_round_ms' in line:
        return case, 'ms', line['full_decode_round_ms']
    return case, 'ms', line.get('decode_step_ms', 1e3 * line.get('decode_s', 0) / (line['output'] - 1))


def run(name, command, row, flags, cases, repeat, number, raw):
    """Runs a command once. Returns its lines, and whether its exit status was 0."""
    shape = ROWS[row][0]
    full = [*shlex.split(command), '--model', os.path.join(SHAPES, shape), '--dummy', '1', '--device', 'cuda:0', '--budget', '8192',
            *flags, '--repeat', str(repeat), '--cases', cases]
    done = subprocess.run(full, capture_output=True, text=True)
    if done.returncode != 0:
        print(f'{shlex.join(full)}: {done.stderr.strip()[-500:]}', file=sys.stderr, flush=True)
    lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith('{')]
    for line in lines:
        line.update(name=name, row=row, round=number)
        if raw:
            raw.write(json.dumps(line) + '\n')
            raw.flush()
    return lines, done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('commands', nargs='+', metavar='NAME=COMMAND')
    parser.add_argument('--rows', default='decode,prompt')
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--raw')
    arguments = parser.parse_args()
    commands = [one.split('=', 1) for one in arguments.commands]
    raw = open(arguments.raw, 'a', encoding='utf-8') if arguments.raw else None
    failed = False
    for row in arguments.rows.split(','):
        row, _, cases = row.partition(':')
        _, flags, usual, repeat = ROWS[row]
        found = {}  # by case and unit, then by name
        for number in range(arguments.rounds):
            for name, command in commands if number % 2 == 0 else reversed(commands):
                lines, ended_well = run(name, command, row, flags, cases.replace('/', ',') or usual, repeat, number, raw)
                failed = failed or not lines or not ended_well
                for line in lines:
                    case, unit, value = value_of(line)
                    found.setdefault((case, unit), {}).setdefault(name, []).append(round(value, 4))
        for (case, unit), values in found.items():
            medians = {name: statistics.median(some) for name, some in values.items()}
            first = medians.get(commands[0][0])
            slower = {name: (first / value if unit == 'tokens/s' else value / first) for name, value in medians.items() if first}
            print(json.dumps({'row': row, 'case': case, 'unit': unit, 'median': medians,
                              'ratio': {name: round(value, 4) for name, value in slower.items()},
                              'runs': values}), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
