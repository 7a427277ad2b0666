"""Compares how fast Baton, Hugging Face tokenizers and tiktoken tokenise English prose with SmolLM2's vocabulary, on one core each.

Usage: pip install tokenizers tiktoken && python compare.py BUILD/bin/text_bench
Prints one JSON object. Each ratio is Baton's speed divided by the other library's speed.
"""
import ast
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = pathlib.Path(__file__).parents[2] / "tests/data/text/smollm2.tokenizer"
BYTES = 2_000_000


def prose():
    """Returns docstrings of Python's standard library: technical English without repetition."""
    text = []
    size = 0
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                doc = ast.get_docstring(node)
                if doc and len(doc) > 80 and doc.isascii():
                    text.append(doc)
                    size += len(doc) + 1
        if size > BYTES:
            break
    return "\n".join(text)[:BYTES]


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def vocabulary():
    lines = VOCABULARY.read_text().splitlines()
    pieces = [line.split(" ", 1)[1] for line in lines[:252]]
    merges = [tuple(line.split(" ")) for line in lines[252:]]
    return pieces + ["".join(m) for m in merges], merges


def best(run, runs=5):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    text = prose()
    pieces, merges = vocabulary()
    hf = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    hf.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    hf.decoder = decoders.ByteLevel()

    alphabet = byte_alphabet()
    ranks = {bytes(alphabet[c] for c in p): i for i, p in enumerate(pieces) if i >= 17}
    for byte in range(256):
        ranks.setdefault(bytes([byte]), len(pieces) + byte)
    pattern = r"'(?:[sdmt]|ll|ve|re)|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    tik = tiktoken.Encoding("smollm2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    with tempfile.TemporaryDirectory() as folder:
        tokenizer_path = os.path.join(folder, "tokenizer.json")
        text_path = os.path.join(folder, "text")
        hf.save(tokenizer_path)
        pathlib.Path(text_path).write_text(text)
        baton = json.loads(subprocess.run([sys.argv[1], tokenizer_path, text_path], check=True, capture_output=True, text=True).stdout)

    result = {"baton": baton}
    for name, run in (("tokenizers", lambda: hf.encode(text, add_special_tokens=False).ids), ("tiktoken", lambda: tik.encode_ordinary(text))):
        tokens = len(run())
        speed = len(text) / best(run, 3) / 1e6
        result[name] = {"tokens": tokens, "encode_mb_per_s": round(speed, 2), "ratio": round(baton["encode_mb_per_s"] / speed, 2)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
