#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"

namespace baton {

// How a model's makers want it sampled, where a request does not say. What is absent is the API's
// own default.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;  // 0: all
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;

  // "temperature 0.6, top_p 0.95"; empty when there is nothing.
  std::string ToString() const;
};

// From generation_config.json of a Hugging Face directory; nothing where there is no such file, or
// for a GGUF file. Errors: InvalidArgument naming file and key of a value that is out of range.
StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& path);

}  // namespace baton
