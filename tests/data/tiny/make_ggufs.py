#!/usr/bin/env python3
"""Writes tiny models as the GGUF files that llama.cpp's converter writes, to gguf/NAME.gguf.

The names of keys and tensors are those of the package gguf (0.19), which the converter uses. The file of deepseek_v3
has the form of files since April 2025: keys and values of a head apart, and those of keys transposed. The file of
deepseek_v2_qlora has the form before it.

usage: make_ggufs.py    (needs gguf and numpy)"""
import json
import pathlib
import re
import struct

import gguf
import numpy

HERE = pathlib.Path(__file__).parent
DTYPES = {"F32": numpy.float32, "BF16": numpy.uint16, "U8": numpy.uint8}


def read_tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, info in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        raw = data[8 + length + begin:8 + length + end]
        tensors[name] = numpy.frombuffer(raw, DTYPES[info["dtype"]]).reshape(info["shape"])
    return tensors


def widened(tensor):
    if tensor.dtype == numpy.float32:
        return tensor
    return (tensor.astype(numpy.uint32) << 16).view(numpy.float32)


def stack_experts(tensors, experts):
    """Replaces the matrices of a layer's experts by one tensor."""
    stacked = {}
    for name, tensor in tensors.items():
        found = re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(.*)", name)
        if not found:
            stacked[name] = tensor
        elif int(found[2]) == 0:
            parts = [tensors[f"{found[1]}.{expert}.{found[3]}"] for expert in range(experts)]
            stacked[f"{found[1]}.{found[3]}"] = numpy.stack(parts)
    return stacked


def split_heads(tensors, config):
    """Divides kv_b_proj into the parts of keys, transposed, and of values."""
    divided = {}
    for name, tensor in tensors.items():
        if not name.endswith("kv_b_proj.weight"):
            divided[name] = tensor
            continue
        nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
        heads = tensor.reshape(config["num_attention_heads"], nope + value, tensor.shape[1])
        divided[name.replace("kv_b", "k_b")] = heads[:, :nope].transpose(0, 2, 1)
        divided[name.replace("kv_b", "v_b")] = heads[:, nope:]
    return divided


def mxfp4_blocks(numbers, scales):
    """Makes of numbers [..][groups][16 bytes] and scales [..][groups] rows of GGUF's blocks of 17 bytes.

    Byte i of a group has numbers 2i and 2i + 1; byte i of a block has numbers i and i + 16."""
    values = numpy.stack([numbers & 15, numbers >> 4], axis=-1).reshape(*scales.shape, 32)
    packed = values[..., :16] | values[..., 16:] << 4
    blocks = numpy.concatenate([scales[..., None], packed], axis=-1)
    return blocks.reshape(*scales.shape[:-1], -1)


def join_mxfp4(tensors):
    """Replaces the two tensors of MXFP4 numbers by one of GGUF's blocks, [experts][outputs][bytes]."""
    joined = {}
    for name, tensor in tensors.items():
        if name.endswith("_blocks"):
            form = name.removesuffix("_blocks")
            joined[form] = mxfp4_blocks(tensor, tensors[form + "_scales"])
        elif not name.endswith("_scales"):
            joined[name] = tensor
    return joined


def divide_gate_and_up(tensors):
    """Makes of the experts of gpt-oss [experts][outputs][inputs], with gate and up as tensors of their own."""
    divided = {}
    for name, tensor in tensors.items():
        if ".mlp.experts." not in name:
            divided[name] = tensor
            continue
        bias = name.endswith("_bias")
        form = name.removesuffix("_bias") + (".bias" if bias else ".weight")
        # Those of MXFP4 have the outputs first already.
        tensor = tensor if bias or tensor.dtype == numpy.uint8 else tensor.transpose(0, 2, 1)
        if "gate_up_proj" in name:
            divided[form.replace("gate_up_proj", "gate_proj")] = tensor[:, ::2]
            divided[form.replace("gate_up_proj", "up_proj")] = tensor[:, 1::2]
        else:
            divided[form] = tensor
    return divided


def write_common_keys(to, config, kv_heads):
    to.add_context_length(config["max_position_embeddings"])
    to.add_embedding_length(config["hidden_size"])
    to.add_block_count(config["num_hidden_layers"])
    to.add_feed_forward_length(config["intermediate_size"])
    to.add_head_count(config["num_attention_heads"])
    to.add_head_count_kv(kv_heads)
    to.add_rope_freq_base(config["rope_theta"])
    to.add_layer_norm_rms_eps(config["rms_norm_eps"])
    to.add_vocab_size(config["vocab_size"])
    to.add_tokenizer_model("none")
    to.add_bos_token_id(config["bos_token_id"])
    to.add_eos_token_id(config["eos_token_id"])


def write_yarn_keys(to, scaling):
    to.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    to.add_rope_scaling_factor(scaling["factor"])
    to.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    to.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
    to.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])


def write_gemma_keys(to, config):
    write_common_keys(to, config, config["num_key_value_heads"])
    to.add_key_length(config["head_dim"])
    to.add_value_length(config["head_dim"])
    to.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "gemma2":
        to.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        to.add_final_logit_softcapping(config["final_logit_softcapping"])
    else:
        to.add_sliding_window_pattern(config["sliding_window_pattern"])
        to.add_rope_freq_base_swa(config["rope_local_base_freq"])
        to.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        to.add_rope_scaling_factor(config["rope_scaling"]["factor"])


def write_gpt_oss_keys(to, config):
    write_common_keys(to, config, config["num_key_value_heads"])
    write_yarn_keys(to, config["rope_scaling"])
    to.add_key_length(config["head_dim"])
    to.add_value_length(config["head_dim"])
    to.add_expert_used_count(config["num_experts_per_tok"])
    to.add_expert_count(config["num_local_experts"])
    to.add_expert_feed_forward_length(config["intermediate_size"])
    to.add_sliding_window(config["sliding_window"])


def write_deepseek_keys(to, config, split):
    nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    rank, value = config["kv_lora_rank"], config["v_head_dim"]
    write_common_keys(to, config, 1 if split else config["num_key_value_heads"])
    write_yarn_keys(to, config["rope_scaling"])
    to.add_expert_used_count(config["num_experts_per_tok"])
    to.add_leading_dense_block_count(config["first_k_dense_replace"])
    to.add_q_lora_rank(config["q_lora_rank"])
    to.add_kv_lora_rank(rank)
    if split:
        to.add_key_length(rank + rope)
        to.add_value_length(rank)
        to.add_key_length_mla(nope + rope)
        to.add_value_length_mla(value)
    else:
        to.add_key_length(nope + rope)
        to.add_value_length(value)
    to.add_rope_dimension_count(rope)
    to.add_expert_feed_forward_length(config["moe_intermediate_size"])
    to.add_expert_count(config["n_routed_experts"])
    to.add_expert_group_count(config["n_group"])
    to.add_expert_group_used_count(config["topk_group"])
    to.add_expert_shared_count(config["n_shared_experts"])
    to.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["norm_topk_prob"]:
        to.add_expert_weights_norm(True)
    sigmoid = config["scoring_func"] == "sigmoid"
    to.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)
    to.add_rope_scaling_yarn_log_mul(0.1 * config["rope_scaling"]["mscale_all_dim"])


def write_tensors(to, tensors, names):
    for theirs, tensor in tensors.items():
        # The converter's names of what has neither ".weight" nor ".bias".
        theirs = theirs.replace("e_score_correction_bias", "e_score_correction.bias")
        theirs = theirs.replace("self_attn.sinks", "self_attn.sinks.weight")
        ours = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        if tensor.ndim == 1 or "ffn_gate_inp" in ours or ours.endswith(".bias"):
            tensor = widened(tensor)
        tensor = numpy.ascontiguousarray(tensor)
        if tensor.dtype == numpy.float32:
            to.add_tensor(ours, tensor)
        elif tensor.dtype == numpy.uint8:
            to.add_tensor(ours, tensor, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        else:
            to.add_tensor(ours, tensor.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)


def convert(name, arch, split=False):
    config = json.loads((HERE / name / "config.published.json").read_text(encoding="utf-8"))
    tensors = read_tensors(HERE / name / "model.safetensors")
    to = gguf.GGUFWriter(HERE / "gguf" / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[arch])
    if arch == gguf.MODEL_ARCH.GPT_OSS:
        write_gpt_oss_keys(to, config)
        tensors = divide_gate_and_up(join_mxfp4(tensors))
    elif arch == gguf.MODEL_ARCH.DEEPSEEK2:
        write_deepseek_keys(to, config, split)
        tensors = stack_experts(tensors, config["n_routed_experts"])
        if split:
            tensors = split_heads(tensors, config)
    else:
        write_gemma_keys(to, config)
        tensors = {name: widened(tensor) + 1 if name.endswith("norm.weight") else tensor
                   for name, tensor in tensors.items()}
    write_tensors(to, tensors, gguf.get_tensor_name_map(arch, config["num_hidden_layers"]))
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


convert("deepseek_v3", gguf.MODEL_ARCH.DEEPSEEK2, split=True)
convert("deepseek_v2_qlora", gguf.MODEL_ARCH.DEEPSEEK2)
convert("gpt_oss", gguf.MODEL_ARCH.GPT_OSS)
convert("gpt_oss_mxfp4", gguf.MODEL_ARCH.GPT_OSS)
convert("gemma2", gguf.MODEL_ARCH.GEMMA2)
convert("gemma3_text", gguf.MODEL_ARCH.GEMMA3)
