#include "common/model/model_family.h"

#include <iterator>

#include "common/base/check.h"

namespace baton {
namespace {

// In the order of ModelFamily.
constexpr std::string_view kNames[] = {
    "llama",        "mistral",
    "mixtral",      "qwen2",
    "qwen3",        "qwen3_moe",
    "glm4",         "granite",
    "granitemoe",   "olmo2",
    "seed_oss",     "exaone4",
    "dots1",        "glm4_moe",
    "qwen2_moe",    "phi3",
    "smollm3",      "minimax_m2",
    "cohere",       "hunyuan_v1_dense",
    "stablelm",     "phi",
    "gpt_neox",     "olmo3",
    "cohere2",      "gemma3_text",
    "gpt_oss",      "llama4_text",
    "gemma2",       "deepseek_v2",
    "deepseek_v3",  "deepseek_v32",
    "ernie4_5_moe", "hunyuan_v1_moe",
    "qwen3_next",   "nemotron_h",
    "falcon_h1",    "mamba2",
    "jamba",        "kimi_linear",
    "qwen3_5_text", "qwen3_5_moe_text",
};
static_assert(std::size(kNames) == static_cast<size_t>(ModelFamily::kQwen35Moe) + 1);

}  // namespace

std::string_view Name(ModelFamily family) {
  const auto index = static_cast<size_t>(family);
  BATON_CHECK(index < std::size(kNames), "model family {}", index);
  return kNames[index];
}

}  // namespace baton
