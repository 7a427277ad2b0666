"""Writes tiktoken.json: a small tiktoken.model in Kimi K2's form, and the tokens that the library tiktoken computes with it.

Usage: pip install tokenizers tiktoken && python make_tiktoken_goldens.py   (after make_pattern_goldens.py)
"""
import base64
import json
import random

import tiktoken

from make_pattern_goldens import KIMI, strings
from make_tokenizer_goldens import HERE

SPECIAL = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|tool_call_begin|>", False), 255: ("[PAD]", True)}


def main():
    patterns = json.loads((HERE / "patterns.json").read_text())
    # GPT-2's printable alphabet back to bytes.
    printable = {chr(c): c for c in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    printable.update({chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in printable.values())})
    texts = [bytes(printable[c] for c in token) for token, _ in sorted(patterns["vocab"].items(), key=lambda item: item[1])]
    ranks = {text: rank for rank, text in enumerate(dict.fromkeys(texts))}
    first = len(ranks)
    special = {name: first + at for at, (name, _) in SPECIAL.items()}
    special.update({f"<|reserved_token_{i}|>": i for i in range(first, first + 256) if i not in special.values()})
    encoding = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    rng = random.Random(11)
    names = [*special][:5] + [f"<|reserved_token_{first + 9}|>"]
    cases = []
    for text in list(strings(rng))[:600]:
        if rng.random() < 0.2:
            text = rng.choice(names) + text + rng.choice(names)
        cases.append([text, encoding.encode(text, allowed_special="all"), encoding.encode(text, disallowed_special=())])
    config = {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
              "added_tokens_decoder": {str(first + at): {"content": name, "special": is_special, "normalized": False}
                                       for at, (name, is_special) in SPECIAL.items()}}
    document = {"about": "cases: text, tokens with special tokens, tokens without", "tiktoken": tiktoken.__version__, "tokenizer_config": config,
                "ranks": "".join(f"{base64.b64encode(text).decode()} {rank}\n" for text, rank in ranks.items()), "cases": cases}
    (HERE / "tiktoken.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
