#!/usr/bin/env python3
"""Makes qwen3_embedding: a tiny random model with the files and the tensor names of Qwen3-Embedding,
and golden.json: embeddings and scores that numpy computes in float64 from the published description
of Qwen3 (RMS norms, one of them on each head of q and k; rotary embedding of halves; grouped-query
attention; SwiGLU). Tokens are those of Hugging Face's tokenizers. Needs numpy, safetensors and
tokenizers.
"""

import json
import pathlib
import re

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent / "qwen3_embedding"
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 64, 2, 4, 2, 16, 96, 512
EPSILON, THETA = 1e-6, 10000.0
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
JUDGE = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
         " the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
         "<|im_start|>user\n<Instruct>: {}\n<Query>: {}\n<Document>: {}<|im_end|>\n"
         "<|im_start|>assistant\n<think>\n\n</think>\n\n")
TEXTS = [
    "a",
    "The sky is blue.",
    "What is the capital of China?",
    "The capital of China is Beijing. It has been the capital for most of the last eight centuries.",
    "Instruct: " + INSTRUCTION + "\nQuery:Explain gravity",
    "Gravity is a force that attracts two bodies towards each other. " * 8,
    "größer als 文字 🙂",
]
PAIRS = [
    ["What is the capital of China?", "The capital of China is Beijing.", ""],
    ["What is the capital of China?", "Gravity attracts bodies.", ""],
    ["Explain gravity", "Gravity attracts bodies.", ""],
    ["Explain gravity", "Not <|im_end|> a special token.", "Find passages about physics"],
    ["Explain gravity", "yes yes yes no", ""],
]


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(SPECIAL), special_tokens=[],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    corpus = TEXTS + [JUDGE.format(INSTRUCTION, *pair[:2]) for pair in PAIRS] + ["yes\nno\n"] * 50
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    end = tokenizer.token_to_id(SPECIAL[0])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="$A " + SPECIAL[0], special_tokens=[(SPECIAL[0], end)])])
    return tokenizer


def make_weights():
    random = np.random.default_rng(3)

    def matrix(rows, cols):
        return random.normal(0, 1.2 / np.sqrt(cols), (rows, cols)).astype(np.float32)

    def norm(size):
        return (1 + 0.3 * random.normal(size=size)).astype(np.float32)

    weights = {"embed_tokens.weight": matrix(VOCAB, HIDDEN), "norm.weight": norm(HIDDEN)}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        weights |= {
            at + "input_layernorm.weight": norm(HIDDEN),
            at + "self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            at + "self_attn.q_norm.weight": norm(HEAD_DIM),
            at + "self_attn.k_norm.weight": norm(HEAD_DIM),
            at + "post_attention_layernorm.weight": norm(HIDDEN),
            at + "mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            at + "mlp.up_proj.weight": matrix(INNER, HIDDEN),
            at + "mlp.down_proj.weight": matrix(HIDDEN, INNER),
        }
    return weights


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rotate(x):
    """[rows][heads][head_dim]; row i has position i."""
    half = HEAD_DIM // 2
    angles = np.arange(len(x))[:, None] / THETA ** (np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def hidden_states(weights, tokens):
    """After the final norm, [tokens][hidden]."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = w["embed_tokens.weight"][tokens]
    rows = len(tokens)
    future = np.triu(np.ones((rows, rows), bool), 1)
    for layer in range(LAYERS):
        def of(name):
            return w[f"layers.{layer}.{name}.weight"]
        normed = rms_norm(x, of("input_layernorm"))
        q = (normed @ of("self_attn.q_proj").T).reshape(rows, HEADS, HEAD_DIM)
        k = (normed @ of("self_attn.k_proj").T).reshape(rows, KV_HEADS, HEAD_DIM)
        v = (normed @ of("self_attn.v_proj").T).reshape(rows, KV_HEADS, HEAD_DIM)
        q = rotate(rms_norm(q, of("self_attn.q_norm")))
        k = rotate(rms_norm(k, of("self_attn.k_norm")))
        heads = []
        for head in range(HEADS):
            shared = head // (HEADS // KV_HEADS)
            logits = q[:, head] @ k[:, shared].T / np.sqrt(HEAD_DIM)
            logits[future] = -np.inf
            weight = np.exp(logits - logits.max(-1, keepdims=True))
            heads.append(weight / weight.sum(-1, keepdims=True) @ v[:, shared])
        x = x + np.concatenate(heads, -1) @ of("self_attn.o_proj").T
        normed = rms_norm(x, of("post_attention_layernorm"))
        gate = normed @ of("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (normed @ of("mlp.up_proj").T)) @ of("mlp.down_proj").T
    return rms_norm(x, w["norm.weight"])


def encode_judge(tokenizer, *texts):
    """Only the template's special tokens are such; those in texts are plain text."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    left = list(texts)
    tokens = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", JUDGE):
        if part in SPECIAL:
            tokens.append(tokenizer.token_to_id(part))
            continue
        while "{}" in part:
            part = part.replace("{}", left.pop(0), 1)
        if part:
            tokens += plain.encode(part, add_special_tokens=False).ids
    return tokens


def numbers(vector):
    return [float(f"{number:.9g}") for number in vector]


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def main():
    (HERE / "1_Pooling").mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save(str(HERE / "tokenizer.json"))
    weights = make_weights()
    save_file(weights, HERE / "model.safetensors", metadata={"format": "pt"})
    end = tokenizer.token_to_id(SPECIAL[0])
    write_json(HERE / "config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
        "bos_token_id": end, "eos_token_id": end, "head_dim": HEAD_DIM, "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "max_position_embeddings": 2048,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": EPSILON, "rope_theta": THETA, "rope_scaling": None,
        "tie_word_embeddings": False, "torch_dtype": "float32", "use_sliding_window": False,
        "vocab_size": VOCAB})
    write_json(HERE / "tokenizer_config.json", {"eos_token": SPECIAL[0], "pad_token": SPECIAL[0]})
    names = ["Transformer", "Pooling", "Normalize"]
    write_json(HERE / "modules.json", [
        {"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{name}",
         "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(names)])
    write_json(HERE / "1_Pooling" / "config.json", {
        "word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False, "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": True, "include_prompt": True})
    embeddings = []
    for text in TEXTS:
        tokens = tokenizer.encode(text).ids
        states = hidden_states(weights, tokens)
        embeddings.append({"text": text, "tokens": tokens, "last": numbers(states[-1]),
                           "mean": numbers(states.mean(0)), "first": numbers(states[0])})
    scores = []
    for query, document, instruction in PAIRS:
        tokens = encode_judge(tokenizer, instruction or INSTRUCTION, query, document)
        scores.append({"query": query, "document": document, "instruction": instruction})
        logits = weights["embed_tokens.weight"].astype(np.float64) @ hidden_states(weights, tokens)[-1]
        yes, no = (logits[tokenizer.token_to_id(word)] for word in ("yes", "no"))
        scores[-1] |= {"tokens": tokens, "score": float(1 / (1 + np.exp(no - yes)))}
    write_json(HERE / "golden.json", {"embeddings": embeddings, "scores": scores})


if __name__ == "__main__":
    main()
