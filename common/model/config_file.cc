#include "common/model/config_file.h"

#include <string_view>

#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;

// Python writes infinite numbers without quotes, which is not JSON. Puts the form of transformers 5
// in their place.
std::string QuoteInfinities(std::string_view text) {
  constexpr std::string_view kBare = "Infinity";
  std::string quoted;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string && text.substr(i).starts_with(kBare)) {
      quoted += R"({"__float__": "Infinity"})";
      i += kBare.size() - 1;
      continue;
    }
    const bool escaped = in_string && text[i] == '\\' && i + 1 < text.size();
    if (escaped) quoted += text[i++];
    if (text[i] == '"' && !escaped) in_string = !in_string;
    quoted += text[i];
  }
  return quoted;
}

}  // namespace

StatusOr<std::unique_ptr<JsonFields>> ReadConfigFile(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return JsonFields::Parse(path, QuoteInfinities(text));
}

}  // namespace baton
