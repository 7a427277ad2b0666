"""Writes a model that says what the conversation tells it to say, so that a small cluster calls any tool and writes any
JSON of a client.

A user's message may contain <say>texts</say>. The answer is the first text, after one message of the assistant the
second one, and so on; without a text (left) it is DEFAULT_ANSWER. The chat template copies the text to the place
DISTANCE tokens before the answer. Each byte is a token. The only head of the only layer attends to exactly that
distance, by the phases of its query, and copies: the weights are computed, not trained."""
import json
import math
import pathlib
import struct

DISTANCE = 2048
DEFAULT_ANSWER = "It rains in Bern."
END = 256  # the only token that is not a byte
VOCABULARY = END + 1
CONTEXT = 65536
WIDTH = 128  # of the hidden state, and of the head
FFN = 32
THETA = 10000.0

# The hidden state has the code of the token itself, the code of the copied token, and a constant.
CODE_BITS = 9
COPY_AT = 16
CONSTANT_AT = 32
CONSTANT = math.sqrt(7)  # together with the nine bits of ±1: a norm of 4
QUERY_GAIN = 4.0
COPY_GAIN = 4.0
LOGIT_GAIN = 3.0

TEMPLATE = """{%- for message in messages -%}
<{{ message.role }}>
{%- if message.content %}{{ message.content }}{% endif -%}
{%- for call in message.tool_calls or [] -%}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
{%- endfor -%}
{%- if tools -%}<tools>{{ tools | tojson }}</tools>{%- endif -%}
{%- set script = namespace(texts=[], turn=0) -%}
{%- for message in messages -%}
{%- if message.role == "user" and message.content and "<say>" in message.content -%}
{%- set script.texts = message.content.split("<say>")[1:] -%}
{%- set script.turn = 0 -%}
{%- elif message.role == "assistant" -%}
{%- set script.turn = script.turn + 1 -%}
{%- endif -%}
{%- endfor -%}
{%- set answer = DEFAULT_ANSWER -%}
{%- if script.turn < script.texts | length -%}
{%- set answer = script.texts[script.turn].split("</say>")[0] -%}
{%- endif -%}
{%- if add_generation_prompt -%}
{{ answer }}<|end|>{{ "." * (DISTANCE - 1 - answer | length) }}
{%- endif -%}
"""


def code_of(token):
    return [1.0 if token >> bit & 1 else -1.0 for bit in range(CODE_BITS)]


def zeros(rows, columns=WIDTH):
    return [[0.0] * columns for _ in range(rows)]


def query_weights():
    """A query that is highest for the key DISTANCE - 1 positions before it: the token there follows in the answer."""
    rows = zeros(WIDTH)
    half = WIDTH // 2
    for pair in range(half):
        phase = (DISTANCE - 1) * THETA ** (-pair / half)
        rows[pair][CONSTANT_AT] = QUERY_GAIN * math.cos(phase)
        rows[pair + half][CONSTANT_AT] = -QUERY_GAIN * math.sin(phase)
    return rows


def weights():
    """The tensors by the names of a Llama checkpoint."""
    embedding, head = zeros(VOCABULARY), zeros(VOCABULARY)
    for token in range(VOCABULARY):
        embedding[token][:CODE_BITS] = code_of(token)
        embedding[token][CONSTANT_AT] = CONSTANT
        head[token][COPY_AT:COPY_AT + CODE_BITS] = [LOGIT_GAIN * bit for bit in code_of(token)]
    key, value, output = zeros(WIDTH), zeros(WIDTH), zeros(WIDTH)
    for pair in range(WIDTH // 2):
        key[pair][CONSTANT_AT] = 1.0
    for bit in range(CODE_BITS):
        value[bit][bit] = 1.0
        output[COPY_AT + bit][bit] = COPY_GAIN
    ones = [[1.0] * WIDTH]
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": embedding,
        layer + "input_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": query_weights(),
        layer + "self_attn.k_proj.weight": key,
        layer + "self_attn.v_proj.weight": value,
        layer + "self_attn.o_proj.weight": output,
        layer + "post_attention_layernorm.weight": ones,
        layer + "mlp.gate_proj.weight": zeros(FFN),
        layer + "mlp.up_proj.weight": zeros(FFN),
        layer + "mlp.down_proj.weight": zeros(WIDTH, FFN),
        "model.norm.weight": ones,
        "lm_head.weight": head,
    }


def safetensors(tensors):
    header, data = {}, b""
    for name, rows in tensors.items():
        raw = b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
        shape = [len(rows[0])] if name.endswith("norm.weight") else [len(rows), len(rows[0])]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def printable_bytes():
    """The character of each byte in byte-level vocabularies: the byte itself where it is printable in Latin-1, else the
    next character from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters, beyond = [], 0x100
    for byte in range(256):
        characters.append(chr(byte if byte in printable else beyond))
        beyond += byte not in printable
    return characters


def tokenizer():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": END, "content": "<|end|>", "special": True, "lstrip": False, "rstrip": False, "single_word": False,
           "normalized": False}
    vocabulary = {character: byte for byte, character in enumerate(printable_bytes())}
    return {"version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


def config():
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
            "intermediate_size": FFN, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": WIDTH,
            "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": THETA, "max_position_embeddings": CONTEXT,
            "tie_word_embeddings": False, "vocab_size": VOCABULARY, "eos_token_id": END, "dtype": "float32"}


def write_model(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    template = TEMPLATE.replace("DISTANCE", str(DISTANCE)).replace("DEFAULT_ANSWER", json.dumps(DEFAULT_ANSWER))
    texts = {"config.json": config(), "tokenizer.json": tokenizer(),
             "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template,
                                       "eos_token": "<|end|>"}}
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(safetensors(weights()))
