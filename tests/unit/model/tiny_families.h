#pragma once

namespace baton {

// Folders in tests/data/tiny: the families besides Llama, Mistral, Mixtral, Qwen 2, Qwen 3 MoE and
// GLM-4, each with its own weights. All tests of families run with them; a test that needs a choice
// of families or other folders names these itself.
inline constexpr const char* kTinyFamilies[] = {
    "granite",
    "granitemoe",
    "olmo2",
    "seed_oss",
    "exaone4",
    "olmo3",
    "cohere2",
    "gemma3_text",
    "gpt_oss",
    "llama4_text",
    "deepseek_v32",
    "gemma2",
    "deepseek_v2_qlora",
    "deepseek_v2_noqlora",
    "deepseek_v3",
    "ernie4_5_moe",
    "hunyuan_v1_moe",
    "dots1",
    "glm4_moe",
    "qwen2_moe",
    "phi3",
    "smollm3",
    "minimax_m2",
    "cohere",
    "hunyuan_v1_dense",
    "stablelm",
    "phi",
    "gpt_neox",
    "qwen3_next",
    "nemotron_h",
    "falcon_h1",
    "mamba2",
    "jamba",
    "kimi_linear",
    "qwen3",
    "qwen3_5_text",
    "qwen3_5_moe_text",
};

}  // namespace baton
