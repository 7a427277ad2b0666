"""Compares masks and the first mask of new schemas in Baton and in llguidance, on one core each, with one vocabulary.

Usage: pip install llguidance==1.9.1 numpy [check-jsonschema] && python compare.py BUILD/bin/grammar_bench
       [--schemas 100] [--seed 7] [--vocabulary 128000] [--rounds 3]
The rounds alternate. Prints one JSON object with the medians. Times are processor times: mask_us of one mask,
first_mask_ms from the text of a schema to its first mask. A ratio is Baton's time divided by llguidance's.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import llguidance
import llguidance.numpy

import cases


class Vocabulary:
    """What llguidance needs of a tokenizer: greedy, as in grammar_bench."""

    def __init__(self, path):
        self.tokens = [bytes.fromhex(piece) for piece in json.loads(pathlib.Path(path).read_text())]
        self.eos_token_id = len(self.tokens) - 1
        self.bos_token_id = None
        self.special_token_ids = [self.eos_token_id]
        self.ids = {piece: token for token, piece in reversed(list(enumerate(self.tokens[:-1])))}
        self.longest = max(map(len, self.ids))

    def __call__(self, text):
        tokens = []
        while text:
            size = min(self.longest, len(text))
            while text[:size] not in self.ids:
                size -= 1
            tokens.append(self.ids[text[:size]])
            text = text[size:]
        return tokens


def summary(values):
    ordered = sorted(values)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0
    return {"count": len(ordered), "mean": statistics.fmean(ordered) if ordered else 0, "p50": at(0.5), "p99": at(0.99),
            "max": at(1)}


def llguidance_round(vocabulary, tokenizer, wanted):
    first_ms, mask_us, refused, broken = [], [], [], []
    mask = llguidance.numpy.allocate_token_bitmask(1, len(vocabulary.tokens))
    for case in wanted:
        begin = time.process_time_ns()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(case["schema"])
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.is_error():
            refused.append(matcher.get_error().split("\n")[0])
            continue
        llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
        first_ms.append((time.process_time_ns() - begin) / 1e6)
        if "document" not in case:
            continue
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        for token in vocabulary(case["document"].encode()) + [vocabulary.eos_token_id]:
            begin = time.thread_time_ns()
            llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
            mask_us.append((time.thread_time_ns() - begin) / 1e3)
            if not matcher.consume_token(token):
                broken.append(case["document"][:64])
                break
    return {"first_mask_ms": summary(first_ms), "mask_us": summary(mask_us), "refused": refused,
            "broken_documents": broken}


def median_of(rounds, name):
    return {key: round(statistics.median(one[name][key] for one in rounds), 3) for key in rounds[0][name]}


def compare(bench, wanted, rounds, vocabulary_size):
    """Runs both in turn over the cases."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        pieces, file = folder + "/vocabulary.json", folder + "/cases.json"
        pathlib.Path(file).write_text(json.dumps(wanted))
        command = [bench, "--cases", file, "--vocabulary", str(vocabulary_size), "--write_vocabulary", pieces]
        tokenizer = None
        for _ in range(rounds):
            ours.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            if tokenizer is None:
                vocabulary = Vocabulary(pieces)
                tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
            theirs.append(llguidance_round(vocabulary, tokenizer, wanted))
    result = {}
    for name, found in (("baton", ours), ("llguidance", theirs)):
        result[name] = {key: median_of(found, key) for key in ("first_mask_ms", "mask_us")}
        result[name]["refused"] = len(found[0]["refused"])
        result[name]["broken_documents"] = len(found[0]["broken_documents"])
    result["ratio"] = {
        f"{key}_{part}": round(result["baton"][key][part] / result["llguidance"][key][part], 3)
        for key in ("first_mask_ms", "mask_us") for part in ("mean", "p99") if result["llguidance"][key][part]}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="path of grammar_bench")
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--vocabulary", type=int, default=128000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result = {"vocabulary": options.vocabulary, "schemas": options.schemas, "seed": options.seed,
              "llguidance_version": llguidance.__version__}
    result["generated"] = compare(options.bench, cases.generated(options.schemas, options.seed), options.rounds,
                                  options.vocabulary)
    public = cases.public()
    if public:
        result["public"] = compare(options.bench, public, 1, options.vocabulary)
        result["public"]["schemas"] = len(public)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
