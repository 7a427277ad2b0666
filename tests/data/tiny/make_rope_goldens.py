"""Writes llama_linear/ and llama_yarn/: the outputs of transformers for the weights of llama3_rope with other kinds of
rope scaling.

Usage: pip install transformers torch && python make_rope_goldens.py
"""
import json
import pathlib
import random

import torch
import transformers

HERE = pathlib.Path(__file__).parent
WEIGHTS = HERE / "llama3_rope"
KINDS = {
    "llama_linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    "llama_yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 10000.0},
}
STEPS = 32


def golden(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
        case = {"prompt": ids, "tokens": [], "margins": []}
        top = torch.topk(logits[-1], 8)
        case["first_top8"] = [[int(t), round(float(v), 5)] for t, v in zip(top.indices, top.values)]
        case["mean_nll"] = None
        if len(ids) > 1:
            nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
            case["mean_nll"] = round(float(nll), 6)
        done = list(ids)
        for _ in range(STEPS):
            last = model(torch.tensor([done])).logits[0, -1].double()
            best = torch.topk(last, 2)
            case["tokens"].append(int(best.indices[0]))
            case["margins"].append(round(float(best.values[0] - best.values[1]), 5))
            done.append(case["tokens"][-1])
    return case


def main():
    for name, rope in KINDS.items():
        config = json.loads((WEIGHTS / "config.json").read_text())
        config["rope_parameters"] = rope
        config["max_position_embeddings"] = 512
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            WEIGHTS, config=transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32,
            attn_implementation="eager").eval()
        rng = random.Random(11)
        prompts = [[rng.randrange(3, config["vocab_size"]) for _ in range(length)] for length in (1, 9, 64, 200, 420)]
        document = {"family": name, "transformers": transformers.__version__, "dtype": "float32",
                    "prompts": [golden(model, ids) for ids in prompts]}
        text = json.dumps(document)
        (folder / "golden.json").write_text(text)
        print(name, len(text), [min(p["margins"]) for p in document["prompts"]])


if __name__ == "__main__":
    main()
