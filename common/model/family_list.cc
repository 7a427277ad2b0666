#include "common/model/family_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

using enum ModelFamily;
using enum GpuSupport;

// x is the residual; n, m and p are norms (README.md).
constexpr FamilyEntry kEntries[] = {
    {.family = kLlama,
     .gpu = kMeasured,
     .models = "Llama 2 and 3, SmolLM2, TinyLlama",
     .gguf = "llama",
     .golden = "llama_gqa",
     .real_weights = "SmolLM2-135M"},
    {.family = kMistral,
     .gpu = kRuns,
     .models = "Mistral 7B",
     .blocks = "a window, in older models",
     .gguf = "llama",
     .golden = "mistral_window"},
    {.family = kMixtral,
     .gpu = kRuns,
     .models = "Mixtral 8x7B",
     .blocks = "experts",
     .gguf = "llama",
     .golden = "mixtral"},
    {.family = kQwen2,
     .gpu = kRuns,
     .models = "Qwen 2.5",
     .blocks = "biases of q, k and v",
     .gguf = "qwen2",
     .golden = "qwen2"},
    {.family = kQwen3,
     .gpu = kRuns,
     .models = "Qwen 3",
     .blocks = "RMS norm of each q and k head",
     .gguf = "qwen3",
     .golden = "qwen3"},
    {.family = kQwen3Moe,
     .gpu = kMeasured,
     .models = "Qwen3-30B-A3B",
     .blocks = "as qwen3, with experts",
     .gguf = "qwen3moe",
     .golden = "qwen3_moe"},
    {.family = kQwen2Moe,
     .gpu = kRuns,
     .models = "Qwen1.5-MoE",
     .blocks = "a shared expert with a gate",
     .gguf = "qwen2moe",
     .golden = "qwen2_moe"},
    {.family = kGlm4,
     .gpu = kRuns,
     .models = "GLM-4 and GLM-Z1 of 2025",
     .blocks = "x + p(f(n(x))), adjacent pairs on half of a head",
     .gguf = "glm4",
     .golden = "glm4"},
    {.family = kSeedOss,
     .gpu = kRuns,
     .models = "Seed-OSS-36B",
     .blocks = "own head size and biases",
     .gguf = "seed_oss",
     .golden = "seed_oss"},
    {.family = kPhi3,
     .gpu = kRuns,
     .models = "Phi-3, Phi-4",
     .blocks = "joined tensors; LongRoPE",
     .gguf = "phi3",
     .golden = "phi3"},
    {.family = kSmolLm3,
     .gpu = kRuns,
     .models = "SmolLM3-3B",
     .blocks = "layers without rope",
     .gguf = "smollm3",
     .golden = "smollm3"},
    {.family = kGranite,
     .gpu = kRuns,
     .models = "Granite 3",
     .blocks = "factors of embedding, attention, residual and logits",
     .gguf = "granite",
     .golden = "granite"},
    {.family = kGraniteMoe,
     .gpu = kRuns,
     .models = "Granite 3 MoE",
     .blocks = "as granite, with experts",
     .gguf = "granitemoe",
     .golden = "granitemoe"},
    {.family = kOlmo2,
     .gpu = kRuns,
     .models = "OLMo 2",
     .blocks = "x + p(f(x)); RMS norm of all heads of q and of k together",
     .gguf = "olmo2",
     .golden = "olmo2"},
    {.family = kOlmo3,
     .gpu = kRuns,
     .models = "OLMo 3",
     .blocks = "as olmo2; windows in three of four layers, whose rope has no scaling",
     .gguf = "olmo2",
     .golden = "olmo3"},
    {.family = kExaone4,
     .gpu = kRuns,
     .models = "EXAONE 4",
     .blocks = "x + p(f(x)); of windowed models, only layers with a window rotate",
     .gguf = "exaone4",
     .golden = "exaone4"},
    {.family = kDots1,
     .gpu = kRuns,
     .models = "dots.llm1",
     .blocks = "sigmoid router with a selection bias and groups; shared experts",
     .gguf = "dots1",
     .golden = "dots1"},
    {.family = kGlm4Moe,
     .gpu = kRuns,
     .models = "GLM-4.5 and later",
     .blocks = "the router of dots1",
     .gguf = "glm4moe",
     .golden = "glm4_moe"},
    {.family = kMiniMaxM2,
     .gpu = kRuns,
     .models = "MiniMax-M2",
     .blocks = "sigmoid router with a selection bias; norms as olmo2",
     .gguf = "minimax-m2",
     .golden = "minimax_m2"},
    {.family = kCohere,
     .gpu = kRuns,
     .models = "Command R",
     .blocks = "x + attention(n(x)) + mlp(n(x)), LayerNorm, also of heads; a factor of logits",
     .gguf = "command-r",
     .golden = "cohere"},
    {.family = kCohere2,
     .gpu = kRuns,
     .models = "Command R7B, Command A",
     .blocks =
         "as cohere, without norms of heads; windows in three of four layers, only these rotate",
     .gguf = "cohere2",
     .golden = "cohere2"},
    {.family = kGemma3,
     .gpu = kMeasured,
     .models = "Gemma 3 (text)",
     .blocks = "as glm4, but halves; windows in five of six layers, with a rope of their own; a "
               "gate of GELU; scaled embeddings",
     .gguf = "gemma3",
     .golden = "gemma3_text",
     .real_weights = "Gemma 3 270M"},
    {.family = kGemma2,
     .gpu = kRuns,
     .models = "Gemma 2",
     .blocks = "as gemma3_text without norms of heads and with one rope; windows in every other "
               "layer; soft-capped logits, also of attention",
     .gguf = "gemma2",
     .golden = "gemma2"},
    {.family = kGptOss,
     .gpu = kMeasured,
     .models = "gpt-oss (not MXFP4)",
     .blocks = "sinks of the heads; windows in every other layer; experts and router with biases, "
               "a clamped gate",
     .gguf = "gpt-oss",
     .golden = "gpt_oss"},
    {.family = kLlama4,
     .models = "Llama 4 Scout, Maverick (text)",
     .blocks = "attention within chunks, but in each fourth layer; norms of heads as "
               "hunyuan_v1_dense, without weights; weighted inputs of experts",
     .golden = "llama4_text"},
    {.family = kHunyuan,
     .gpu = kRuns,
     .models = "Hunyuan-7B",
     .blocks = "RMS norm of heads after rope; rope scaling by alpha",
     .gguf = "hunyuan-dense",
     .golden = "hunyuan_v1_dense"},
    {.family = kHunyuanMoe,
     .gpu = kRuns,
     .models = "Hunyuan-A13B",
     .blocks = "as hunyuan_v1_dense; a shared expert",
     .golden = "hunyuan_v1_moe"},
    {.family = kStableLm,
     .gpu = kRuns,
     .models = "StableLM 2",
     .blocks = "LayerNorm with bias; optionally parallel as cohere",
     .gguf = "stablelm",
     .golden = "stablelm"},
    {.family = kPhi,
     .gpu = kRuns,
     .models = "Phi-2",
     .blocks = "LayerNorm with bias, parallel, GELU without a gate, a bias of the head",
     .golden = "phi"},
    {.family = kGptNeox,
     .gpu = kRuns,
     .models = "Pythia, GPT-NeoX",
     .blocks = "as phi, with two norms: x + attention(n(x)) + mlp(m(x))",
     .golden = "gpt_neox"},
    {.family = kErnieMoe,
     .gpu = kRuns,
     .models = "ERNIE 4.5 with experts",
     .blocks = "adjacent pairs; a softmax router with a selection bias; shared experts; experts in "
               "a range of layers",
     .gguf = "ernie4_5-moe",
     .golden = "ernie4_5_moe"},
    {.family = kDeepSeekV2,
     .models = "DeepSeek-V2",
     .blocks = "latent attention; a softmax router whose weights are not normalised, groups by "
               "their best expert; shared experts",
     .gguf = "deepseek2",
     .golden = "deepseek_v2_qlora"},
    {.family = kDeepSeekV3,
     .models = "DeepSeek-V3 and R1, Kimi K2",
     .blocks = "latent attention; the router of dots1",
     .gguf = "deepseek2",
     .golden = "deepseek_v3"},
    {.family = kDeepSeekV32,
     .models = "DeepSeek-V3.2",
     .blocks = "as deepseek_v3; rows attend to the tokens that an index selects",
     .golden = "deepseek_v32"},
    {.family = kQwen3Next,
     .models = "Qwen3-Next",
     .blocks = "gated delta nets in three of four layers; a gate of attention; a shared expert "
               "with a gate",
     .gguf = "qwen3next",
     .golden = "qwen3_next"},
    {.family = kQwen35,
     .models = "Qwen 3.5 (text)",
     .blocks = "as qwen3_next, dense, with q, k, v and z of gated delta nets by kind",
     .golden = "qwen3_5_text"},
    {.family = kQwen35Moe,
     .models = "Qwen3.5-35B-A3B (text)",
     .blocks = "as qwen3_5_text, with the experts of qwen3_next",
     .golden = "qwen3_5_moe_text"},
    {.family = kNemotronH,
     .models = "Nemotron-H, Nemotron Nano 2 and 3",
     .blocks = "a layer is Mamba 2, attention without rope, a network of max(up x, 0)², or such "
               "experts with the router of dots1",
     .golden = "nemotron_h"},
    {.family = kFalconH1,
     .models = "Falcon-H1",
     .blocks = "attention and Mamba 2 side by side in each layer; factors of nearly everything",
     .gguf = "falcon-h1",
     .golden = "falcon_h1"},
    {.family = kMamba2,
     .models = "Mamba 2, Mamba-Codestral",
     .blocks = "Mamba 2 in each layer, and nothing else",
     .gguf = "mamba2",
     .golden = "mamba2"},
    {.family = kJamba,
     .models = "Jamba",
     .blocks = "Mamba (1) with norms in all but one of eight layers, attention without rope; "
               "experts in every other layer",
     .golden = "jamba"},
    {.family = kKimiLinear,
     .models = "Kimi Linear",
     .blocks = "Kimi delta attention in three of four layers, latent attention without rope in the "
               "others; the router of dots1",
     .golden = "kimi_linear"},
};

std::string_view Name(GpuSupport support) {
  switch (support) {
    case kNone:
      return "no";
    case kRuns:
      return "yes";
    case kMeasured:
      break;
  }
  return "yes, measured";
}

}  // namespace

std::span<const FamilyEntry> FamilyList() {
  return kEntries;
}

std::vector<std::vector<std::string>> FamilyTable() {
  std::vector<std::vector<std::string>> rows = {{"model_type",
                                                 "models",
                                                 "blocks that differ from Llama's",
                                                 "GGUF",
                                                 "golden",
                                                 "real weights",
                                                 "GPUs"}};
  for (const FamilyEntry& entry : kEntries) {
    rows.push_back({std::string(Name(entry.family)),
                    std::string(entry.models),
                    std::string(entry.blocks),
                    std::string(entry.gguf),
                    std::string(entry.golden),
                    std::string(entry.real_weights),
                    std::string(Name(entry.gpu))});
  }
  return rows;
}

std::string FamilyTableInMarkdown() {
  std::vector<std::vector<std::string>> rows = FamilyTable();
  rows.insert(rows.begin() + 1, std::vector<std::string>(rows.front().size(), "---"));
  std::string table;
  for (const auto& row : rows) table += fmt::format("| {} |\n", fmt::join(row, " | "));
  return table;
}

}  // namespace baton
