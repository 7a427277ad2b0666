"""Writes sentencepiece.json: small models of SentencePiece, and hashes of the tokens and texts that its own library and Hugging Face's
compute with them.

Usage: pip install sentencepiece tokenizers && python make_sentencepiece_goldens.py
"""
import base64
import io
import json
import random
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from make_pattern_goldens import MORE, fnv
from make_tokenizer_goldens import ALPHABET, CORPUS, FIXED, HERE

# A map as nmt_nfkc, which is too large for the tree: characters that become others, several, or nothing; keys that begin like each other.
RULES = {"Ａ": "A", "①": "1", "ﬁ": "fi", "\u00e9": "e", "e\u0301": "\u00e9", "\u3000": " ", "\t": " ", "\n": " ", "\u200b": "", "ｶ": "カ", "ｶﾞ": "ガ", "가": "가나",
         "½": "1⁄2", "a\u0308": "\u00e4", "…": "...", "㍿": "株式会社", "🙂": ":)"}
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
KINDS = {
    "bpe": {"model_type": "bpe", "byte_fallback": True, **IDENTITY},
    "bpe_no_prefix": {"model_type": "bpe", "byte_fallback": True, "add_dummy_prefix": False, **IDENTITY},
    "bpe_unknown": {"model_type": "bpe", **IDENTITY},
    "bpe_rules": {"model_type": "bpe"},
    "unigram": {"model_type": "unigram", "byte_fallback": True, **IDENTITY},
    "unigram_rules": {"model_type": "unigram"},
    "unigram_rules_no_prefix": {"model_type": "unigram", "add_dummy_prefix": False, "byte_fallback": True},
    "unigram_across_words": {"model_type": "unigram", "split_by_whitespace": False, **IDENTITY},
}
PIECES = ["<tool>", "▁▁", "  ", "   ", "<s>", "</s>", " <tool> ", "word", *RULES]


def train(rules, options):
    out = io.BytesIO()
    if options.get("normalization_rule_name") != "identity":
        options = {**options, "normalization_rule_tsv": rules}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in CORPUS + [" ".join(MORE)] for line in text.splitlines() if line]), model_writer=out, vocab_size=700,
        character_coverage=0.98, user_defined_symbols=["<tool>", "▁▁"], minloglevel=2, unk_surface="<unk>", hard_vocab_limit=False, num_threads=1, **options)
    return out.getvalue()


def converted(model):
    """A unigram model as transformers' SpmConverter writes it to a tokenizer.json."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback))
    steps = [normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)] if proto.normalizer_spec.precompiled_charsmap else []
    tokenizer.normalizer = normalizers.Sequence(steps + [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    scheme = "always" if proto.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", scheme)]) if proto.trainer_spec.byte_fallback else decoders.Metaspace("▁", scheme)
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.add_tokens(["<tool>"])
    return tokenizer


def main():
    rng = random.Random(5)
    texts = FIXED + ["".join(rng.choice(PIECES + MORE) if rng.random() < 0.15 else rng.choice(ALPHABET) for _ in range(rng.randint(1, 40))) for _ in range(2500)]
    # SentencePiece's trie ends a text at a zero byte, and its decoder takes all "▁" at the beginning of a text for white space.
    # Hugging Face's library makes a byte of the text "<0x0A>".
    texts = [text for text in texts if "\0" not in text and "<0x" not in text and not text.startswith("▁▁")][:2020]
    files = {}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for source, target in RULES.items():
            rules.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
        rules.flush()
        for name, options in KINDS.items():
            model = train(rules.name, options)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            ids = [processor.encode(text) for text in texts]
            files[name] = {"model": base64.b64encode(model).decode(), "ids": [fnv(one) for one in ids],
                           "decoded": [fnv(processor.decode(one).encode()) for one in ids[:600]]}
            if not name.startswith("unigram"):
                continue
            tokenizer = converted(model)
            files[name]["json"] = json.loads(tokenizer.to_str())
            files[name]["json_ids"] = [fnv(tokenizer.encode(text).ids) for text in texts]
            print(name, len(model))
    document = {"sentencepiece": sentencepiece.__version__, "tokenizers": tokenizers.__version__, "texts": texts, "files": files}
    (HERE / "sentencepiece.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
