#!/usr/bin/env python3
"""Measures groups of CPU ranks: the exchange, the plan, the shapes, the idle group and the loss of a rank.

  rank_table.py BUILD MODEL [--rows exchange,plan,shapes,idle,loss] [--repeat 5] [--realtime]

BUILD has bin/ and bench/ (build/cpu); MODEL is a GGUF file whose heads 3 ranks can divide (SmolLM2-135M).
Prints one JSON object for each row. The rows of two ranks need two free processors: other load makes them
worse, so each row has all of its runs, and `best` beside the median. `--realtime` lets the benchmarks of
exchange, plan and shapes go before all other programs of a shared machine (chrt -f, as root). A run of
`shapes` alternates the two shapes that it compares.
"""
import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TICK = os.sysconf('SC_CLK_TCK')
LIMIT = 120  # seconds
FIRST = []  # what goes before the command of a benchmark


def lines(command):
    text = subprocess.run([*FIRST, *command], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in text.splitlines() if line.startswith('{')]


def show(row, **values):
    print(json.dumps({'row': row, **values}), flush=True)


def exchange(build, model, repeat):
    runs = [one for _ in range(repeat) for one in lines([f'{build}/bench/collective_bench', '2', '3'])
            if one['bytes'] == 8192]
    ratios = [one['ratio'] for one in runs]
    show('exchange of 8 KB beside a raw loop', ratio=statistics.median(ratios), best=min(ratios),
         must=3, goal=1.5, runs=runs)


def plan(build, model, repeat):
    for followers in (1, 2):
        runs = lines([f'{build}/bench/step_ring_bench', str(followers), '64', str(repeat)])
        show('plan to the last rank, ranks awake', followers=followers,
             p50_us=statistics.median(one['p50_us'] for one in runs), best_p50_us=min(one['p50_us'] for one in runs),
             p99_us=statistics.median(one['p99_us'] for one in runs), best_p99_us=min(one['p99_us'] for one in runs),
             must=[20, 60], goal=[8, 20], runs=runs)


def engines(build, model, case, key, flags, workers):
    """The sum of `key` of workers that run at the same time."""
    found = []
    command = [f'{build}/bin/engine_bench', '--model', model, '--cases', case, *flags]
    threads = [threading.Thread(target=lambda: found.append(lines(command)[0][key])) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


def compare(build, model, repeat, row, case, key, ours, theirs, workers, must, goal):
    """The ratio of `key` in the shape `ours` to that of `workers` in the shape `theirs`."""
    ratios, pairs = [], []
    for _ in range(repeat):
        pair = [engines(build, model, case, key, theirs, workers), engines(build, model, case, key, ours, 1)]
        pairs.append(pair)
        ratios.append(pair[1] / pair[0])
    show(row, ratio=round(statistics.median(ratios), 3), best=round(max(ratios), 3), must=must, goal=goal,
         ratios=[round(one, 3) for one in ratios], tokens_per_second=pairs)


def shapes(build, model, repeat):
    one_rank = ('--threads', '2')
    # SmolLM2's 3 KV heads do not divide by 2: the shape that engine_ranks.jsonl was measured with.
    shape = ('--dummy', '1')
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'shapes/cpu-ranks')
    tp2 = ('--threads', '1', '--tensor', '2')
    compare(build, folder, repeat, 'TP 2, decode of 8 rows', '8x16x64', 'decode_tok_s', (*shape, *tp2),
            (*shape, *one_rank), 1, 0.85, 0.95)
    compare(build, folder, repeat, 'TP 2, prompt of 512', '1x512x2', 'prefill_tok_s', (*shape, *tp2),
            (*shape, *one_rank), 1, 0.90, 0.97)
    # Beside two single workers of one thread each, which share the processors' memory and caches as the stages do.
    compare(build, folder, repeat, 'PP 2, decode of 16 rows', '16x16x64', 'decode_tok_s',
            (*shape, '--threads', '1', '--pipeline', '2'), (*shape, '--threads', '1'), 2, 0.90, 0.96)


class Cluster:
    """A router, and workers that serve alone, as real processes with free ports."""

    def __init__(self, build, model, folder):
        self.build, self.model, self.folder = build, model, folder
        self.processes = {}
        self.router = self.start('baton-router', 'router', ['listen=127.0.0.1:0', 'worker_listen=127.0.0.1:0',
                                                            'admin_listen=127.0.0.1:0'])

    def start(self, program, name, settings):
        words = [f'{self.build}/bin/{program}']
        for one in [f'model.path={self.model}', 'process.http_listen=127.0.0.1:0', *settings]:
            words += ['--set', one]
        with open(f'{self.folder}/{name}.log', 'w') as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes[name] = process
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        return json.loads(line[len('ready '):])

    def worker(self, name, *settings):
        return self.start('baton-decode', name, [
            f'worker_id={name}', 'unified=true', 'kv_listen=127.0.0.1:0', 'engine.threads=1',
            'engine.kv_memory_mib=128', f'routers=["{self.router["workers"]}"]', *settings])

    def ranks(self, name):
        leader = self.processes[name].pid
        with open(f'/proc/{leader}/task/{leader}/children') as file:
            return [leader, *map(int, file.read().split())]

    def log(self, name):
        with open(f'{self.folder}/{name}.log') as file:
            return file.read()

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def cpu_seconds(pid):
    with open(f'/proc/{pid}/stat') as file:
        fields = file.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def idle(build, model, repeat):
    seconds = 20
    for ranks in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(build, model, folder)
            try:
                cluster.worker('group', f'engine.tensor_parallel={ranks}')
                time.sleep(5)  # after the warm-up
                before = {pid: cpu_seconds(pid) for pid in cluster.ranks('group')}
                time.sleep(seconds)
                used = [round((cpu_seconds(pid) - at) / seconds * 100, 2) for pid, at in before.items()]
            finally:
                cluster.end()
        show('idle group: percent of a core', ranks=ranks, sum=round(sum(used), 2), by_rank=used, must=2, goal=1)


def stream(address, prompt, tokens, out):
    """Appends (time, text) of each piece of a greedy answer to `out`."""
    connection = http.client.HTTPConnection(address, timeout=LIMIT)
    body = {'prompt': prompt, 'max_tokens': tokens, 'temperature': 0, 'stream': True, 'ignore_eos': True}
    connection.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
    for line in connection.getresponse():
        if line.startswith(b'data: {'):
            for choice in json.loads(line[6:])['choices']:
                out.append((time.monotonic(), choice['text']))


def loss(build, model, repeat):
    prompt, tokens = 'Once upon a time there was a runner who', 400
    runs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(build, model, folder)
            try:
                cluster.worker('group', 'engine.tensor_parallel=3')
                pieces, expected = [], []
                stream(cluster.router['http'], prompt, tokens, expected)
                cluster.worker('other')
                client = threading.Thread(target=stream, args=(cluster.router['http'], prompt, tokens, pieces))
                # The policy may take either worker: the request must be on the group.
                cluster.processes['other'].send_signal(signal.SIGSTOP)
                time.sleep(1.5)  # until the router suspects it
                client.start()
                while len(pieces) < 40:
                    time.sleep(0.001)
                cluster.processes['other'].send_signal(signal.SIGCONT)
                time.sleep(1)
                if not client.is_alive():
                    raise SystemExit('the answer ended before the loss: raise its tokens')
                victim = cluster.ranks('group')[-1]
                killed = time.monotonic()
                os.kill(victim, signal.SIGKILL)
                known = None
                while cluster.processes['group'].poll() is None:
                    if known is None and 'the group ends' in cluster.log('group'):
                        known = time.monotonic()
                    time.sleep(0.001)
                out = time.monotonic()
                client.join()
            finally:
                cluster.end()
        later = [at for at, _ in pieces if at > out]
        gap = max(b - a for (a, _), (b, _) in zip(pieces, pieces[1:]))
        runs.append({'known_ms': round(((known or out) - killed) * 1000, 1), 'out_ms': round((out - killed) * 1000, 1),
                     'next_token_ms': round((min(later) - killed) * 1000, 1) if later else None,
                     'longest_pause_ms': round(gap * 1000, 1),
                     'equal': ''.join(text for _, text in pieces) == ''.join(text for _, text in expected)})
    show('a killed rank', known_ms=statistics.median(one['known_ms'] for one in runs),
         out_ms=statistics.median(one['out_ms'] for one in runs), equal=all(one['equal'] for one in runs),
         must={'known_ms': 200, 'out_ms': 1000}, goal={'known_ms': 100, 'out_ms': 500}, runs=runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('model')
    parser.add_argument('--rows', default='exchange,plan,shapes,idle,loss')
    parser.add_argument('--repeat', type=int, default=5)
    parser.add_argument('--realtime', action='store_true')
    arguments = parser.parse_args()
    if arguments.realtime:
        FIRST.extend(['chrt', '-f', '10'])
    with open('/proc/cpuinfo') as file:
        processor = re.search(r'model name\s*: (.*)', file.read()).group(1)
    show('machine', processor=processor, processors=os.cpu_count(), load=os.getloadavg()[0],
         command=' '.join(sys.argv))
    for row in arguments.rows.split(','):
        {'exchange': exchange, 'plan': plan, 'shapes': shapes, 'idle': idle, 'loss': loss}[row](
            os.path.abspath(arguments.build), arguments.model, arguments.repeat)


main()
