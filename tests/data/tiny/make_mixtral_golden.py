"""Writes mixtral/: a Mixtral with random weights, as transformers saves it, and the outputs of transformers for it.

Usage: pip install transformers torch && python make_mixtral_golden.py
"""
import json
import random

import torch
import transformers

from make_rope_goldens import HERE, golden

NAME = "mixtral"


def main():
    torch.manual_seed(5)
    config = transformers.MixtralConfig(
        vocab_size=384, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=2048,
        initializer_range=0.12, rms_norm_eps=1e-5, sliding_window=None, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    # The norms vary, so that an implementation that omits one gives other results. The routers vary, so that
    # different tokens choose different experts.
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.3 * torch.randn_like(weight))
            elif weight.shape == (config.num_local_experts, config.hidden_size):
                weight.copy_(0.5 * torch.randn_like(weight))
    folder = HERE / NAME
    model.save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    rng = random.Random(12)
    prompts = [[rng.randrange(3, config.vocab_size) for _ in range(length)] for length in (1, 9, 64, 200, 420)]
    document = {"family": NAME, "transformers": transformers.__version__, "dtype": "float32",
                "prompts": [golden(model, ids) for ids in prompts]}
    (folder / "golden.json").write_text(json.dumps(document))
    print([min(p["margins"]) for p in document["prompts"]])


if __name__ == "__main__":
    main()
