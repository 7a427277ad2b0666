#include "common/model/generation_defaults.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "common/base/mapped_file.h"
#include "common/cluster/sampling_fields.h"
#include "common/model/config_fields.h"
#include "common/model/model_spec.h"
#include "common/model/open_model.h"

namespace baton {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;

std::optional<float> ReadIn(JsonFields& fields, std::string_view key, const FloatRange& range) {
  if (!fields.Has(key)) return std::nullopt;
  const auto value = static_cast<float>(fields.Number(key, -1e6, 1e6));
  if (const Status status = CheckRange(key, value, range); !status.ok()) {
    fields.Fail(Annotate(status, fields.file()));
  }
  return value;
}

}  // namespace

std::string GenerationDefaults::ToString() const {
  std::string text;
  const auto add = [&text](std::string_view name, const auto& value) {
    if (!value) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  for (const SamplingField& field : kSamplingFields) add(field.name, this->*field.override_value);
  add("top_k", top_k);
  return text;
}

StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const ModelLocation location, LocateModel(path));
  const std::string file = location.path + "/generation_config.json";
  std::error_code ignored;
  if (location.kind != ModelLocation::Kind::kHfDirectory ||
      !std::filesystem::exists(file, ignored)) {
    return GenerationDefaults();
  }
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxBytes));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<JsonFields> fields, JsonFields::Parse(file, text));
  GenerationDefaults defaults;
  for (const SamplingField& field : kSamplingFields) {
    if (field.model_default) {
      defaults.*field.override_value = ReadIn(*fields, field.name, field.range);
    }
  }
  if (fields->Has("top_k")) {
    // Some files have -1 for "all tokens".
    defaults.top_k = std::max(kTopKRange.low, fields->Int("top_k", -1, ModelSpec::kMaxVocabulary));
  }
  if (!fields->BoolOr("do_sample", true)) defaults.temperature = 0.0f;
  BATON_RETURN_IF_ERROR(fields->status());
  return defaults;
}

}  // namespace baton
