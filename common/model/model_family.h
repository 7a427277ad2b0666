#pragma once

#include <cstdint>
#include <string_view>

namespace baton {

// Llama 2 and 3.x and SmolLM2 are kLlama; Qwen 2.5 is kQwen2; GLM-4 and GLM-Z1 of 2025 are kGlm4,
// GLM-4.5 and later kGlm4Moe. Granite 3 is kGranite; Command R is kCohere, Command R7B and Command
// A are kCohere2; Pythia is kGptNeox. Gemma 3 is that of text. DeepSeek-R1 and Kimi K2 are
// kDeepSeekV3; kLlama4 is the text model of Llama 4; kErnieMoe is ERNIE 4.5 with experts;
// Hunyuan-A13B is kHunyuanMoe. kQwen35 and kQwen35Moe are the text models of Qwen 3.5.
enum class ModelFamily : uint8_t {
  kLlama,
  kMistral,
  kMixtral,
  kQwen2,
  kQwen3,
  kQwen3Moe,
  kGlm4,
  kGranite,
  kGraniteMoe,
  kOlmo2,
  kSeedOss,
  kExaone4,
  kDots1,
  kGlm4Moe,
  kQwen2Moe,
  kPhi3,
  kSmolLm3,
  kMiniMaxM2,
  kCohere,
  kHunyuan,
  kStableLm,
  kPhi,
  kGptNeox,
  kOlmo3,
  kCohere2,
  kGemma3,
  kGptOss,
  kLlama4,
  kGemma2,
  kDeepSeekV2,
  kDeepSeekV3,
  kDeepSeekV32,
  kErnieMoe,
  kHunyuanMoe,
  kQwen3Next,
  kNemotronH,
  kFalconH1,
  kMamba2,
  kJamba,
  kKimiLinear,
  kQwen35,
  kQwen35Moe,
};

// The name in config.json (model_type), for example "llama" or "qwen3_moe".
std::string_view Name(ModelFamily family);

constexpr bool IsQwen35(ModelFamily family) {
  return family == ModelFamily::kQwen35 || family == ModelFamily::kQwen35Moe;
}

constexpr bool IsGemma(ModelFamily family) {
  return family == ModelFamily::kGemma2 || family == ModelFamily::kGemma3;
}

}  // namespace baton
