#!/usr/bin/env python3
"""Measures groups of GPUs with engine_bench: tensor ranks and stages, for models of the folder shapes with dummy weights.

  group_table.py ENGINE_BENCH [--devices cuda:0,cuda:1,cuda:2,cuda:3] [--models 8b,70b,mixture] [--shapes 4x1,2x1,2x2,1x2,1x1]
                 [--cases decode,prompt,throughput,offline] [--modes plain,deterministic] [--limit 540] [--process_limit 240]
                 [--raw FILE] [--flags '--kernel_cache FOLDER']

A shape is TENSOR RANKSxSTAGES. One process runs all cases of a model, a shape and a mode; processes run at the same time
on disjoint devices. Prints a JSON object for each case: milliseconds of a decode step or a prompt, or tokens a second of
a whole run (unit). Then prints the ratios between shapes that have a goal, and on stderr a table. --raw writes the lines of
engine_bench as they come. A process that runs longer than --process_limit seconds is killed, and so are all after --limit
seconds or at SIGTERM. --cases takes names of CASES below, or STREAMSxPROMPTxOUTPUT. The exit status is 1 when a process
failed or was killed.
"""
import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

from compare_gpu import SHAPES, value_of

# For each model: its folder, the flags, and the fewest ranks that hold it.
MODELS = {
    '8b': ('llama-3.1-8b', [], 1),
    '70b': ('llama-3.1-70b', ['--weights', 'fp8'], 2),
    'mixture': ('qwen3-30b-a3b', [], 1),
}
# Short cases run several times, each time with a warm-up.
CASES = {
    'decode': ['1x1024x64', '1x1024x64', '64x2048x64', '256x512x64'],
    'prompt': ['1x8192x1'] * 3 + ['1x32000x1'] * 3,
    'throughput': ['128x1024x120'] + ['1x32000x1'] * 3,
    'offline': ['256x1000x1000'],
}
# Ratios of decode steps of one row: the model, the shape, the shape it is compared with, and the most it may be.
GOALS = [('8b', '4x1', '2x1', 0.75), ('70b', '4x1', '2x1', 0.62)]
ONE_ROW = '1x1024x64'


def figures_of(line):
    """The case, the unit and the value of each figure of a line of engine_bench."""
    figures = [value_of(line)]
    case = figures[0][0]
    if line['streams'] > 1 and 'full_decode_tok_s' in line:
        figures.append((f'{case} decoding', 'tokens/s', line['full_decode_tok_s']))
    steps = 'prompt_steps_under_way' if line['output'] == 1 else 'decode_steps_under_way'
    if line['pipeline'] > 1:
        figures.append((f'{case} under way', 'steps', line[steps]))
    return figures


class Job:
    """A process of engine_bench: one model in one shape and mode."""

    def __init__(self, model, shape, mode):
        self.model, self.shape, self.mode = model, shape, mode
        self.tensor, self.stages = map(int, shape.split('x'))
        self.ranks = self.tensor * self.stages
        self.lines, self.problem = [], None
        self.kill = lambda: None

    def command(self, engine_bench, devices, cases, flags):
        folder, of_model, _ = MODELS.get(self.model, (self.model, [], 1))
        device = 'cpu' if set(devices) == {'cpu'} else ','.join(devices)
        return [*shlex.split(engine_bench), '--model', os.path.join(SHAPES, folder), '--dummy', '1', '--device', device,
                '--budget', '8192', '--tensor', str(self.tensor), '--pipeline', str(self.stages),
                '--deterministic', str(int(self.mode == 'deterministic')), *of_model, *flags, '--cases', ','.join(cases)]

    def run(self, command, limit, keep):
        """Runs the process for at most `limit` seconds. `keep` receives each line of its results."""
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.kill = process.kill  # the other ranks end with the first one
        timer = threading.Timer(max(1, limit), process.kill)
        timer.start()
        errors = []
        reader = threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True)
        reader.start()
        for text in process.stdout:
            if text.startswith('{'):
                line = {'model_name': self.model, 'shape': self.shape, 'mode': self.mode, **json.loads(text)}
                self.lines.append(line)
                keep(line)
        process.wait()
        timer.cancel()
        reader.join(1)
        if process.returncode == -signal.SIGKILL:
            self.problem = f'killed after {time.monotonic() - begin:.0f} s'
        elif process.returncode != 0:
            self.problem = f'status {process.returncode}: ' + ' '.join(''.join(errors[-6:]).split())[-500:]


class Table:
    """The medians by model, mode, case and shape."""

    def __init__(self):
        self.medians, self.units = {}, {}

    def add(self, job, devices):
        """Prints a JSON object for each case of the job."""
        found = {}
        for line in job.lines:
            for case, unit, value in figures_of(line):
                found.setdefault((case, unit), []).append(round(value, 4))
        for (case, unit), runs in found.items():
            median = statistics.median(runs)
            self.medians[(job.model, job.mode, case, job.shape)] = median
            self.units[case] = unit
            print(json.dumps({'model': job.model, 'tensor': job.tensor, 'stages': job.stages, 'mode': job.mode, 'case': case,
                              'unit': unit, 'median': median, 'runs': runs, 'devices': devices,
                              'load_s': round(job.lines[0]['load_s'], 2)}), flush=True)
        if job.problem:
            print(json.dumps({'model': job.model, 'tensor': job.tensor, 'stages': job.stages, 'mode': job.mode,
                              'devices': devices, 'problem': job.problem}), flush=True)

    def ratios(self, modes):
        for mode in modes:
            for model, shape, other, goal in GOALS:
                pair = [self.medians.get((model, mode, ONE_ROW, one)) for one in (shape, other)]
                if None in pair:
                    continue
                ratio = round(pair[0] / pair[1], 3)
                print(json.dumps({'ratio': f'{model}, {mode}: decode step of one row, {shape} / {other}', 'value': ratio,
                                  'must_be_at_most': goal, 'met': ratio <= goal}), flush=True)

    def show(self, shapes):
        rows = [['model', 'mode', 'case', 'unit', *shapes]]
        for model, mode, case in dict.fromkeys(key[:3] for key in self.medians):
            values = [self.medians.get((model, mode, case, shape)) for shape in shapes]
            rows.append([model, mode, case, self.units[case], *(f'{one:.2f}' if one else '-' for one in values)])
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            print('  '.join(one.ljust(width) for one, width in zip(row, widths)), file=sys.stderr)


def run_all(jobs, devices, begin):
    """Calls begin(job, devices) on a thread for each job, in order, when as many devices as it has ranks are free."""
    free, waiting, threads = list(devices), list(jobs), []
    changed = threading.Condition()

    def one(job, own):
        try:
            begin(job, own)
        finally:
            with changed:
                free.extend(own)
                free.sort(key=devices.index)
                changed.notify()

    while waiting:
        with changed:
            changed.wait_for(lambda: any(job.ranks <= len(free) for job in waiting))
            job = next(job for job in waiting if job.ranks <= len(free))
            waiting.remove(job)
            own = free[:job.ranks]
            del free[:job.ranks]
        threads.append(threading.Thread(target=one, args=(job, own)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('engine_bench')
    parser.add_argument('--devices', default='cuda:0,cuda:1,cuda:2,cuda:3')
    parser.add_argument('--models', default='8b,70b,mixture')
    parser.add_argument('--shapes', default='4x1,2x1,2x2,1x2,1x1')
    parser.add_argument('--cases', default='decode,prompt')
    parser.add_argument('--modes', default='plain')
    parser.add_argument('--limit', type=float, default=540)
    parser.add_argument('--process_limit', type=float, default=240)
    parser.add_argument('--raw')
    parser.add_argument('--flags', default='', help='more flags of engine_bench')
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.limit
    devices, shapes, modes = (text.split(',') for text in (arguments.devices, arguments.shapes, arguments.modes))
    cases = [case for name in arguments.cases.split(',') for case in CASES.get(name, [name])]
    jobs = [Job(model, shape, mode) for model in arguments.models.split(',') for mode in modes for shape in shapes]
    too_large = [job for job in jobs if job.ranks > len(devices)]
    if too_large:
        parser.error(f'the shape {too_large[0].shape} needs {too_large[0].ranks} devices')
    jobs = [job for job in jobs if job.ranks >= MODELS.get(job.model, ('', [], 1))[2]]
    jobs.sort(key=lambda job: -job.ranks)  # so that no small process keeps devices from a large one
    raw = open(arguments.raw, 'a', encoding='utf-8') if arguments.raw else None
    table, lock, stopped = Table(), threading.Lock(), threading.Event()

    def stop(*_):
        stopped.set()
        for job in jobs:
            job.kill()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    def keep(line):
        if raw:
            with lock:
                raw.write(json.dumps(line) + '\n')
                raw.flush()

    def begin(job, own):
        left = deadline - time.monotonic()
        if left < 5 or stopped.is_set():
            job.problem = 'not started: the time is over'
        else:
            job.run(job.command(arguments.engine_bench, own, cases, shlex.split(arguments.flags)),
                    min(left, arguments.process_limit), keep)
        with lock:
            table.add(job, own)

    run_all(jobs, devices, begin)
    table.ratios(modes)
    table.show(shapes)
    sys.exit(1 if any(job.problem for job in jobs) else 0)


if __name__ == '__main__':
    main()
