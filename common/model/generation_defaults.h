#pragma once

#include <string>

#include "common/base/status.h"
#include "common/cluster/sampling_fields.h"

namespace baton {

// The model's recommended sampling parameters, for requests that do not set them. For an absent
// parameter the default of the API applies.
struct GenerationDefaults : SamplingOverrides {
  // For example "temperature 0.6, top_p 0.95"; empty when no parameter is set.
  std::string ToString() const;
};

// Reads generation_config.json of a Hugging Face directory. do_sample: false means greedy decoding:
// temperature 0, whatever the file's temperature is. max_new_tokens and max_length are not read.
// All parameters are absent when there is no such file, and for a GGUF file. Errors:
// InvalidArgument naming file and key of a value that is out of range.
StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& path);

}  // namespace baton
