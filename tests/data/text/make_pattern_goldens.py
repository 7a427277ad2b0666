"""Writes patterns.json: for each split pattern of byte-level BPE that GGUF files name, hashes of the tokens that Hugging Face's own
library computes for 2,000 random strings and for all characters.

Usage: pip install tokenizers && python make_pattern_goldens.py

The patterns are those of the tokenizer.json files of the models: o200k (openai/gpt-oss-20b, MiniMax-M2, Llama 4), DeepSeek-V3,
deepseek-coder, Qwen3.5, ByteDance Seed, Ling (bailingmoe), EXAONE-MoE, tiny-aya, and of moonshotai/Kimi-K2's tokenization_kimi.py.
"""
import json
import random
import struct
import unicodedata

import tokenizers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from make_tokenizer_goldens import ALPHABET, CORPUS, GPT2, HERE, TEKKEN, TIKTOKEN

APOSTROPHES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{APOSTROPHES}?", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{APOSTROPHES}?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
NOT_HAN_UPPER, NOT_HAN_LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{NOT_HAN_UPPER}*{NOT_HAN_LOWER}+{APOSTROPHES}?",
                 rf"[^\r\n\p{{L}}\p{{N}}]?{NOT_HAN_UPPER}+{NOT_HAN_LOWER}*{APOSTROPHES}?", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*",
                 r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
               r"""\s*[\r\n]+|\s+(?!\S)|\s+"""]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]
QWEN35 = APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SEED = APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" "\r\n" r"]+|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+"
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
EXAONE_MOE = APOSTROPHES + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
# The name in GGUF files, the patterns, and whether a piece that is a token is not merged.
PATTERNS = {
    "gpt-2": ([GPT2], False), "llama-bpe": ([TIKTOKEN % "{1,3}"], True), "glm4": ([TIKTOKEN % "{1,3}"], False), "qwen2": ([TIKTOKEN % ""], False),
    "tekken": ([TEKKEN], True), "gpt-4o": ([O200K], False), "tiny_aya": ([r"\d{1,3}(?=(?:\d{3})*\b)", O200K], False), "kimi-k2": ([KIMI], False),
    "deepseek-v3": (DEEPSEEK_V3, False), "deepseek-coder": (DEEPSEEK_CODER, False), "qwen35": ([QWEN35], False), "seed-coder": ([SEED], False),
    "bailingmoe": ([BAILING], False), "exaone-moe": ([EXAONE_MOE], False),
}
MORE = ["don't", "I'LL", "x'ſ", "1234567", "12345.678", "HelloWorld", "漢字かな交じり文", "カタカナ", "한국어", "ก็", "नमस्ते", "a\u0301b", "…", "£5", "//\n", "\r\n", " \n ", "!?\n",
        "_name", "#define", "'re", "日 本", "A B", "ǅungla", "ªº"]


def characters():
    """Ranges of all characters of the oldest Unicode version that the libraries here know (Python 3.11's, 14.0)."""
    ranges = []
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in ("Cn", "Cs", "Co"):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def strings(rng):
    for _ in range(2000):
        yield "".join(rng.choice(MORE) if rng.random() < 0.15 else rng.choice(ALPHABET) for _ in range(rng.randint(1, 30)))


def fnv(ids):
    """The last 32 of the 64 bits of FNV-1a over the bytes of the ids."""
    value = 0xcbf29ce484222325
    for byte in struct.pack(f"<{len(ids)}i", *ids):
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"[-8:]


def main():
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trained.train_from_iterator(CORPUS + MORE, trainers.BpeTrainer(vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    texts = list(strings(random.Random(7)))
    ranges = characters()
    every = [chr(code) for first, last in ranges for code in range(first, last + 1)]
    # Words of 5 characters, so that neighbours of each kind meet.
    blocks = [" ".join("".join(every[at:at + 5]) for at in range(begin, min(begin + 640, len(every)), 5)) for begin in range(0, len(every), 640)]
    patterns = {}
    for name, (regexes, ignore_merges) in PATTERNS.items():
        tokenizer = Tokenizer(models.BPE(model["vocab"], merges, ignore_merges=ignore_merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes] +
                                                          [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        patterns[name] = {"ignore_merges": ignore_merges, "pre_tokenizer": json.loads(tokenizer.to_str())["pre_tokenizer"],
                          "texts": [fnv(tokenizer.encode(text).ids) for text in texts], "characters": [fnv(tokenizer.encode(block).ids) for block in blocks]}
        print(name, len(texts), len(blocks))
    document = {"about": "FNV-1a of the tokens of each text, and of each block of 640 characters in words of 5", "tokenizers": tokenizers.__version__,
                "vocab": model["vocab"], "merges": [" ".join(merge) for merge in merges], "ranges": ranges, "texts": texts, "patterns": patterns}
    (HERE / "patterns.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
