"""Writes tiny models as GGUF files by the converter of llama.cpp itself, to gguf/NAME.gguf.

The tiny models have no tokenizer, so the files say that they have none.

Usage: pip install torch transformers numpy sentencepiece && python convert_ggufs.py LLAMA_CPP NAME...
LLAMA_CPP is a folder with `conversion` and `gguf-py` of llama.cpp, as the source package of llama-cpp-python 0.3.36 has
them.
"""
import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
# What published configurations have, but those of transformers do not write.
PUBLISHED = {"cohere2": {"rotary_pct": 1.0}, "hunyuan_v1_dense": {"max_position_embeddings": 32768}}


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

    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            model_folder = pathlib.Path(folder) / name
            shutil.copytree(HERE / name, model_folder)
            config = json.loads((HERE / name / "config.json").read_text()) | PUBLISHED.get(name, {})
            (model_folder / "config.json").write_text(json.dumps(config))
            wide = config.get("dtype", "float32") == "float32"
            hparams = ModelBase.load_hparams(model_folder, False)
            made = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
            made.set_vocab = write_no_tokenizer
            made.no_mtp = name == "qwen3_next"  # else the converter looks for layers of multi-token prediction
            with torch.inference_mode():
                made(model_folder, gguf.LlamaFileType.ALL_F32 if wide else gguf.LlamaFileType.MOSTLY_BF16,
                     HERE / "gguf" / f"{name}.gguf", eager=True).write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
