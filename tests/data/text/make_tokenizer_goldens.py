"""Writes hf/*.json: small tokenizers with the pipelines of published models, and the tokens that Hugging Face's own
library computes with them for many strings.

Usage: pip install tokenizers && python make_tokenizer_goldens.py
"""
import json
import pathlib
import random

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TIKTOKEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|"
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ODD = r"[A-Z][a-z]+|\s+|\d{1,2}|[^\s\w]"

CORPUS = [path.read_text() for path in sorted(HERE.glob("templates/*.jinja"))] + [
    "The quick brown fox jumps over the lazy dog. It's what we're doing; they'll say I'm fine, I'd go, you've won.",
    "Disaggregated serving sends the prompt to one worker and the decoding to another. 12345 67 8 2026-11-21 3.14159",
    "Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Äpfel. L'été à la plage, c'est déjà ça.",
    "Быстрая коричневая лиса. 日本語のテキストです。 한국어 텍스트. नमस्ते दुनिया. مرحبا بالعالم. שלום עולם. Ελληνικά.",
    "def main(argv):\n    for i in range(10):\n        print(f'{i}: {argv[i]}')\n\treturn 0\r\n\r\n",
    "😀 😃 👨‍👩‍👧 é e\u0301 ñ n\u0303 ① Ⅳ ½ ²  \u00a0 \u3000 \u200b ﬁ",
]
ALPHABET = ("abcdefghijklmnopqrstuvwxyzABCDEFGSTZ 0123456789'\"<>|[]_-+*/\\.,;:!?(){}#$%&@^~`  \n\n\r\t\u00a0\u3000\u2028\u1680"
            "éßñÀſKÅ\u0301\u0303\u0300\u0327\u0323日本語한국나нмДжπΩאبनमि्①Ⅳ½²٣५😀👨\u200d👩\ufe0fﬁǅʰːµªº\u0000\u007f\u0085\u200b\ufeff\ufffd𝒜𐍈")
FIXED = [
    "", " ", "  ", "\n", "Hello", " Hello", "Hello, world!", "  two  spaces  ", "a\n\nb\r\n  c\t d", "it's IT'S don't 'S 'ſ 'LL 'Ve x'd",
    "1 22 333 4444 55555 1,234.56", "a  1  b", "<s>", "<s>hi</s>", "a <|tool|> b<|tool|>c", "x<mask> y <mask>z", " <pad>  <pad> ", "word wordy xword word",
    "<Ωnd>", "a<Ωnd>b <\u2126nd> <Ωnd\u0301> <Ωnd>\u0338", "<s><s> a </s>b", "Ωmega é e\u0301 ñ", "日本語のテキスト", "👨‍👩‍👧 family 😀😀", "\u0000\u0001\x7f", "▁x ▁▁ y▁", "\u2581", "HelloWORLD HeLLo ÀéÎ ǅx", "/path/to//x\n/", "a" * 300,
    " " * 70 + "x", "\n" * 50, "ab" * 200, "!?" * 60 + "\n\n/", "<unk> <0x0A> <|", "é" * 100, "e" + "\u0301\u0323" * 20,
]


def added(tokenizer, bos=True):
    if bos:
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>")])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False),
                                  AddedToken("<pad>", rstrip=True, special=True, normalized=False),
                                  AddedToken("<Ωnd>", special=True, normalized=True)])
    tokenizer.add_tokens([AddedToken("<|tool|>", normalized=False), AddedToken("word", single_word=True, normalized=False),
                          AddedToken("Ωmega", normalized=True)])


def byte_level(pre, normalizer=None, size=900, ignore_merges=False, post=None):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    added(tokenizer)
    if post:
        tokenizer.post_processor = post(tokenizer)
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bos_template(tokenizer, eos=False):
    special = [(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")]
    return processors.TemplateProcessing(single="<s> $A" + (" </s>" if eos else ""), special_tokens=special)


def sentence_piece(normalizer, pre, fallback, train_pre):
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    trained.pre_tokenizer = train_pre
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=specials, limit_alphabet=140, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    # The byte pieces are part of the vocabulary but are not added tokens.
    tokenizer = Tokenizer(models.BPE(model["vocab"], [tuple(m) for m in model["merges"]], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=fallback))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    added(tokenizer, bos=False)
    tokenizer.post_processor = bos_template(tokenizer, eos=not fallback)
    return tokenizer


def kinds():
    space = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "gpt2_prefix_space", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    yield "smollm", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    yield "llama3", byte_level(split(TIKTOKEN % "{1,3}"), ignore_merges=True,
                               post=lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), bos_template(t)]))
    yield "qwen2", byte_level(split(TIKTOKEN % ""), normalizer=normalizers.NFC())
    yield "tekken", byte_level(split(TEKKEN), ignore_merges=True, post=bos_template)
    yield "odd_regex", byte_level(split(ODD), normalizer=normalizers.NFKC())
    yield "llama2", sentence_piece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True, space)
    yield "mistral", sentence_piece(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), True, space)
    yield "no_fallback", sentence_piece(None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), False, space)


def strings(seed):
    rng = random.Random(seed)
    yield from FIXED
    yield from CORPUS[5:]
    pieces = ["<s>", "</s>", "<mask>", "<pad>", "<|tool|>", "word", "Ωmega", "<unk>", "  ", "\n\n", "'s", "▁"]
    for _ in range(150):
        yield "".join(rng.choice(pieces) if rng.random() < 0.08 else rng.choice(ALPHABET) for _ in range(rng.randint(1, 40)))


def changed(tokenizer, token):
    return tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str(token) != token


def main():
    (HERE / "hf").mkdir(exist_ok=True)
    for seed, (name, tokenizer) in enumerate(kinds()):
        cases = []
        for text in strings(seed):
            case = {"text": text}
            for key, encode_special, special in (("ids", False, True), ("plain", True, False)):
                tokenizer.encode_special_tokens = encode_special
                case[key] = tokenizer.encode(text, add_special_tokens=special).ids
            case["decoded"] = tokenizer.decode(case["ids"], skip_special_tokens=True)
            if changed(tokenizer, "<Ωnd>") and tokenizer.token_to_id("<Ωnd>") in case["ids"]:
                case["decoded"] = None  # see README.md
            case["decoded_all"] = tokenizer.decode(case["plain"], skip_special_tokens=False)
            cases.append(case)
        tokenizer.encode_special_tokens = False
        document = {"about": "ids: special tokens parsed and put around; plain: neither; decoded: of ids without special tokens; decoded_all: of plain",
                    "tokenizers": tokenizers.__version__, "tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        path = HERE / "hf" / f"{name}.json"
        path.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, len(cases), path.stat().st_size)


if __name__ == "__main__":
    main()
