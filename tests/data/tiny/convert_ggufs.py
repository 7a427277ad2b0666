"""Writes tiny models as GGUF files by the converter of llama.cpp itself, to gguf/NAME.gguf.

The tiny models have no tokenizer, so the files say that they have none.

Usage: pip install torch transformers numpy sentencepiece && python -O convert_ggufs.py LLAMA_CPP NAME...
LLAMA_CPP is a folder with `conversion` and `gguf-py` of llama.cpp, as the source package of llama-cpp-python 0.3.36 has
them. With -O, the converter does not assert that a model has the sizes of the published ones.
"""
import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
# What published configurations have, but those of transformers do not write.
PUBLISHED = {
    "cohere2": {"rotary_pct": 1.0},
    "gpt_neox": {"rotary_pct": 0.25},
    "hunyuan_v1_dense": {"max_position_embeddings": 32768},
    "hunyuan_v1_moe": {"moe_intermediate_size": [32] * 3, "moe_topk": [2] * 3, "num_shared_expert": [1] * 3},
    "kimi_linear": {
        "first_k_dense_replace": 1,
        "linear_attn_config": {"full_attn_layers": [3], "head_dim": 16, "kda_layers": [1, 2, 4], "num_heads": 4,
                               "short_conv_kernel_size": 4},
        "moe_router_activation_func": "sigmoid"},
}
# Sizes of feed-forward networks that the converter does not read: it takes four times the hidden size for Phi-2, and has
# no dense layers in models of Nemotron-H with experts.
FEED_FORWARD = {"phi": 144, "nemotron_h": [0, 112, 0, 0, 32]}


def main(llama_cpp, names):
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import gguf
    import torch
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType, get_model_architecture

    def write_no_tokenizer(model):
        model.gguf_writer.add_tokenizer_model("none")
        config = json.loads((model.dir_model / "config.json").read_text())
        model.gguf_writer.add_bos_token_id(config["bos_token_id"])
        model.gguf_writer.add_eos_token_id(config["eos_token_id"])

    def with_feed_forward(model, size):
        def set_parameters(converted=model.set_gguf_parameters):
            converted()
            model.gguf_writer.add_feed_forward_length(size)
        return set_parameters

    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            model_folder = pathlib.Path(folder) / name
            shutil.copytree(HERE / name, model_folder)
            config = json.loads((HERE / name / "config.json").read_text()) | PUBLISHED.get(name, {})
            (model_folder / "config.json").write_text(json.dumps(config))
            wide = config.get("dtype", "float32") == "float32"
            hparams = ModelBase.load_hparams(model_folder, False) | PUBLISHED.get(name, {})
            made = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
            made.set_vocab = write_no_tokenizer
            # Else the converter looks for layers of multi-token prediction.
            made.no_mtp = name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
            with torch.inference_mode():
                model = made(model_folder, gguf.LlamaFileType.ALL_F32 if wide else gguf.LlamaFileType.MOSTLY_BF16,
                             HERE / "gguf" / f"{name}.gguf", eager=True, hparams=hparams)
                if name in FEED_FORWARD:
                    model.set_gguf_parameters = with_feed_forward(model, FEED_FORWARD[name])
                model.write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
