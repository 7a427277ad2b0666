"""Writes tiny Qwen models with random weights, as transformers saves them, and the outputs of transformers for them.

qwen3_5_text and qwen3_5_moe_text are the text models of Qwen 3.5.

Usage: pip install transformers torch && python make_qwen_goldens.py [NAME...]
"""
import json
import random
import sys

import torch
import transformers

from make_rope_goldens import HERE, golden

COMMON = dict(vocab_size=512, hidden_size=64, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2,
              rms_norm_eps=1e-5, tie_word_embeddings=False, attn_implementation="eager")
HYBRID = dict(COMMON, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
              rope_parameters={"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25,
                               "mrope_interleaved": True, "mrope_section": [2, 1, 1]})


def families():
    yield "qwen3", transformers.Qwen3Config(
        **COMMON, intermediate_size=112, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})
    yield "qwen3_5_text", transformers.Qwen3_5TextConfig(**HYBRID, intermediate_size=112)
    yield "qwen3_5_moe_text", transformers.Qwen3_5MoeTextConfig(
        **HYBRID, moe_intermediate_size=16, shared_expert_intermediate_size=24, num_experts=8, num_experts_per_tok=3)


def vary(model):
    """Gives all norms, biases and gates weights of their own, so that an implementation that omits one gives other
    results."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.3 * torch.randn_like(weight))
            elif name.endswith(("A_log", "dt_bias")):
                weight.copy_(0.5 * torch.randn_like(weight))
            else:
                weight.copy_(0.12 * torch.randn_like(weight))
            if name.endswith(("mlp.gate.weight", "shared_expert_gate.weight")):
                weight.mul_(4)


def write_published(folder, config):
    """The same configuration in the keys of published checkpoints."""
    published = dict(config)
    rope = published.pop("rope_parameters")
    published["rope_theta"] = rope["rope_theta"]
    if "partial_rotary_factor" in rope:
        published["partial_rotary_factor"] = rope["partial_rotary_factor"]
    published["torch_dtype"] = published.pop("dtype", "float32")
    (folder / "config.published.json").write_text(json.dumps(published, indent=2, sort_keys=True) + "\n")


def main():
    for number, (name, config) in enumerate(families()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(50 + number)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        vary(model)
        folder = HERE / name
        model.save_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()
        rng = random.Random(12 + number)
        prompts = [[rng.randrange(3, config.vocab_size) for _ in range(length)] for length in (1, 9, 64, 200, 420)]
        document = {"family": name, "transformers": transformers.__version__, "dtype": "float32",
                    "prompts": [golden(model, ids) for ids in prompts]}
        (folder / "golden.json").write_text(json.dumps(document))
        write_published(folder, json.loads((folder / "config.json").read_text()))


if __name__ == "__main__":
    main()
