"""Writes tekken.json: the first tokens of Mistral's tekken.json, and the tokens that the library mistral_common computes with them.

Usage: pip install mistral_common tokenizers && python make_tekken_goldens.py

Source of the tokens: mistral_common/data/tekken_240911.json (Apache-2.0).
"""
import importlib.metadata
import json
import pathlib
import random
import tempfile

import mistral_common
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from make_pattern_goldens import fnv, strings
from make_tokenizer_goldens import HERE

LISTED, KEPT, SPECIAL = 1500, 1400, 30
# As in files from version 11 on: some ids have no name, and one token is no control token.
NAMES = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>", "[TOOL_CALLS]", "[ARGS]", "[THINK]"]


def tokenizer_of(document):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tekken.json"
        path.write_text(json.dumps(document))
        return Tekkenizer.from_file(path)


def main():
    source = pathlib.Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
    whole = json.loads(source.read_text())
    vocab = [{**token, "token_str": None} for token in whole["vocab"][:LISTED]]
    config = {**whole["config"], "num_vocab_tokens": LISTED, "default_vocab_size": KEPT + SPECIAL, "default_num_special_tokens": SPECIAL}
    old = {"config": config, "vocab": vocab}
    new = {"config": {**config, "version": "v11"}, "vocab": vocab,
           "special_tokens": [{"rank": rank, "token_str": name, "is_control": name != "[THINK]"} for rank, name in enumerate(NAMES)]}
    texts = list(strings(random.Random(13)))
    files = {}
    for name, document in {"old": old, "new": new}.items():
        tokenizer = tokenizer_of(document)
        ids = [tokenizer.encode(text, bos=True, eos=False) for text in texts]
        files[name] = {"special": [tokenizer.id_to_piece(i) for i in range(SPECIAL)], "texts": [fnv(one) for one in ids]}
    document = {"about": "FNV-1a of the tokens of each text", "mistral_common": importlib.metadata.version("mistral_common"),
                "config": config, "special_tokens": new["special_tokens"], "vocab": vocab, "texts": texts, "files": files}
    (HERE / "tekken.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
