#!/usr/bin/env python3
"""Runs cluster_bench on four GPUs: serving curves under open load, and hand-offs between groups of tensor ranks.

  serving_table.py CLUSTER_BENCH MODEL OUT [--devices cuda:0,cuda:1,cuda:2,cuda:3] [--parts curves_1_1_1,handoff_2_2,handoff_1_4]
                   [--rates 4,8,12] [--seconds 20] [--prompt 4096] [--output 256] [--handoff_prompts 4096,16000]
                   [--dma_bench GPU_DMA_BENCH | --plain_copy GB/S] [--limit 200] [--transport cuda_ipc]
                   [--flags '--worker-set engine.kv_memory_mib=24576']

`curves_P_D_U`: prefill workers of P tensor ranks on the first half of the devices and decode workers of D ranks on the other
half, then unified workers of U ranks on all of them, at each rate. A request is good when its TTFT is at most 2 s and the p99 of
its ITL at most 50 ms. `handoff_P_D`: requests that a worker of P ranks hands over to one of D ranks, in turn with requests that
it serves alone; the groups share devices when there are too few. The share of a plain copy compares with one link. The lines of
cluster_bench go to OUT/serving.jsonl as they come, its logs to OUT. Prints a JSON object for each rate and each prompt, and on
stderr a table. A part that runs longer than --limit seconds is killed. The exit status is 1 when a part or a request failed.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import threading


def lines_of(command, limit, keep):
    """The JSON objects that the command prints within `limit` seconds, and what went wrong, or None."""
    print(shlex.join(command), file=sys.stderr, flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(limit, process.kill)  # its workers end with it
    timer.start()
    found, errors = [], []

    def pass_on():
        for text in process.stderr:
            errors.append(text)
            sys.stderr.write(text)

    reader = threading.Thread(target=pass_on, daemon=True)
    reader.start()
    for text in process.stdout:
        if text.startswith('{'):
            found.append(json.loads(text))
            keep(text)
    status = process.wait()
    in_time = timer.is_alive()
    timer.cancel()
    reader.join(5)
    if status == 0:
        return found, None
    return found, (f'status {status}: ' + ''.join(errors)[-2000:].strip()) if in_time else f'killed after {limit:.0f} s'


def plain_copy(arguments, devices):
    """GB/s of a copy between two GPUs, or None."""
    if not arguments.dma_bench or arguments.plain_copy:
        return arguments.plain_copy
    found, _ = lines_of([arguments.dma_bench, devices[0], devices[-1]], 60, lambda text: None)
    return max((line['pieces'] * line['piece_bytes'] / line['copy_us'] / 1e3 for line in found if 'pieces' in line),
               default=None)


def curve(line):
    unified = line['case'] == 'open_unified'
    ranks = str(line['unified_tp']) if unified else f"{line['prefill_tp']}-{line['decode_tp']}"
    return {'workers': 'unified' if unified else 'split', 'ranks': ranks, 'rate': line['rate'], 'requests': line['requests'],
            'failed': line['failed'], **({'last_error': line['last_error']} if line['failed'] else {}),
            'good_share': round(line['good_share'], 3),
            **{f'{name}_{one}': round(line[f'{name}_ms'][one], 1) for name, one in
               (('ttft', 'p50'), ('ttft', 'p99'), ('itl', 'p50'), ('itl', 'p99'), ('itl', 'max')) if f'{name}_ms' in line},
            'served_alone': line['served_alone']}


def handoff(line, plain):
    result = {'prefill_tp': line['prefill_tp'], 'decode_tp': line['decode_tp'], 'prompt': line['prompt'],
              'transport': line['transport'], 'kv_mb': round(line['kv_bytes'] / 1e6, 1),
              'exposed_ms': round(line['exposed_transfer_ms']['p50'], 2),
              'second_token_above_step_ms': round(line['second_token_above_step_ms']['p50'], 2),
              'ttft_above_unified_ms': round(line['ttft_above_unified_ms']['p50'], 2),
              'gb_per_s': round(line['kv_gigabytes_per_second']['p50'], 1),
              'requests_beyond_two_a_round': line['requests_beyond_two_a_round']}
    if plain:
        result.update(plain_copy_gb_per_s=round(plain, 1), share_of_plain_copy=round(result['gb_per_s'] / plain, 3))
    return result


def show(rows):
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = [names, *([str(row.get(name, '-')) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        print('  '.join(one.rjust(width) for one, width in zip(row, widths)), file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('cluster_bench', 'model', 'out'):
        parser.add_argument(name)
    parser.add_argument('--devices', default='cuda:0,cuda:1,cuda:2,cuda:3')
    parser.add_argument('--parts', default='curves_1_1_1,handoff_2_2,handoff_1_4')
    parser.add_argument('--rates', default='4,8,12')
    parser.add_argument('--seconds', default='20')
    parser.add_argument('--prompt', default='4096')
    parser.add_argument('--output', default='256')
    parser.add_argument('--handoff_prompts', default='4096,16000')
    parser.add_argument('--rounds', default='4')
    parser.add_argument('--dma_bench')
    parser.add_argument('--plain_copy', type=float)
    parser.add_argument('--limit', type=float, default=200)
    parser.add_argument('--transport', default='cuda_ipc')
    parser.add_argument('--flags', default='--worker-set engine.kv_memory_mib=24576', help='more flags of cluster_bench')
    arguments = parser.parse_args()
    devices, parts = arguments.devices.split(','), arguments.parts.split(',')
    for part in parts:
        if not re.fullmatch(r'curves_\d+_\d+_\d+|handoff_\d+_\d+', part):
            parser.error(f'{part} must be curves_P_D_U or handoff_P_D')
    os.makedirs(arguments.out, exist_ok=True)
    raw = open(os.path.join(arguments.out, 'serving.jsonl'), 'a', encoding='utf-8')
    curves, handoffs, failed = [], [], False

    def keep(text):
        raw.write(text)
        raw.flush()

    plain = plain_copy(arguments, devices)
    for part in parts:
        command = [arguments.cluster_bench, arguments.model, '--dummy', '--log-folder', os.path.join(arguments.out, part),
                   '--transport', arguments.transport, *shlex.split(arguments.flags)]
        kind, *ranks = part.split('_')
        if kind == 'curves':
            prefill, decode, unified = map(int, ranks)
            half = len(devices) // 2
            command += ['--cases', 'open,open_unified', '--rate', arguments.rates, '--seconds', arguments.seconds,
                        '--open-prompt', arguments.prompt, '--open-output', arguments.output,
                        '--prefill-device', ','.join(devices[:half]), '--decode-device', ','.join(devices[half:]),
                        '--unified-device', ','.join(devices), '--prefill-tp', str(prefill), '--decode-tp', str(decode),
                        '--unified-tp', str(unified)]
        else:
            prefill, decode = map(int, ranks)
            command += ['--cases', 'latency', '--prompts', arguments.handoff_prompts, '--rounds', arguments.rounds,
                        '--prefill-tp', str(prefill), '--decode-tp', str(decode),
                        '--unified-device', ','.join(devices[:prefill]), '--decode-device', ','.join(devices[-decode:])]
        found, problem = lines_of(command, arguments.limit, keep)
        if problem:
            failed = True
            print(json.dumps({'part': part, 'problem': problem}), flush=True)
        for line in found:
            if line['case'].startswith('open'):
                curves.append(curve(line))
                failed = failed or line['failed'] > 0
                print(json.dumps({'part': part, **curves[-1]}), flush=True)
            elif line['case'] == 'latency':
                handoffs.append(handoff(line, plain))
                print(json.dumps({'part': part, **handoffs[-1]}), flush=True)
    show(curves)
    show(handoffs)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
