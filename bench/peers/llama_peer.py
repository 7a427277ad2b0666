"""Measures llama.cpp through llama-cpp-python in the way engine_bench measures Baton: `streams`
prompts of `prompt` tokens at once, then `output` greedy tokens for each. Prints one JSON object."""

import argparse
import json
import time

import llama_cpp
import numpy as np


# A global, so that the callback stays alive: the library may call it until the process exits.
SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--output", type=int, default=128)
    return parser.parse_args()


class Peer:
    def __init__(self, args):
        llama_cpp.llama_log_set(SILENT, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(args.model.encode(), params)
        if not self.model:
            raise SystemExit(f"llama_peer: cannot load {args.model}")
        context = llama_cpp.llama_context_default_params()
        per_stream = args.prompt + args.output + 8
        context.n_ctx = args.streams * per_stream
        context.n_batch = max(512, args.streams * args.prompt)
        context.n_ubatch = 512
        context.n_seq_max = args.streams
        context.n_threads = context.n_threads_batch = args.threads
        if hasattr(context, "kv_unified"):
            context.kv_unified = True
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        if not self.context:
            raise SystemExit("llama_peer: cannot make a context")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocab)
        self.batch = llama_cpp.llama_batch_init(int(context.n_batch), 0, 1)
        self.args = args

    def decode(self, rows):
        """rows: (token, position, sequence, whether this row's logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_peer: llama_decode failed")

    def greedy(self, row):
        logits = llama_cpp.llama_get_logits_ith(self.context, row)
        return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.vocabulary,))))

    def run(self, output):
        args = self.args
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        rows = []
        for stream in range(args.streams):
            for i in range(args.prompt):
                token = (100 + stream * 7919 + i * 613) % self.vocabulary
                rows.append((token, i, stream, i == args.prompt - 1))
        start = time.perf_counter()
        self.decode(rows)
        last = [(stream + 1) * args.prompt - 1 for stream in range(args.streams)]
        tokens = [self.greedy(row) for row in last]
        first = time.perf_counter()
        for step in range(output - 1):
            self.decode([(token, args.prompt + step, stream, True)
                         for stream, token in enumerate(tokens)])
            tokens = [self.greedy(stream) for stream in range(args.streams)]
        end = time.perf_counter()
        result = {
            "threads": args.threads,
            "streams": args.streams,
            "prompt": args.prompt,
            "output": output,
            "prefill_s": first - start,
            "prefill_tok_s": args.streams * args.prompt / (first - start),
        }
        if output > 1:
            result["decode_s"] = end - first
            result["decode_tok_s"] = args.streams * (output - 1) / (end - first)
            result["decode_step_ms"] = (end - first) * 1e3 / (output - 1)
        return result


def main():
    args = parse()
    peer = Peer(args)
    peer.run(4)  # warm-up: loads the pages of the weights and of the KV cache
    print(json.dumps(peer.run(args.output)))


main()
