#include "common/grammar/marked_formats.h"

namespace baton {

Status CheckUnsigned(std::string_view what, std::string_view text) {
  if (text.find(kGrammarSign) == std::string_view::npos) return OkStatus();
  return InvalidArgument(
      "{} has the noncharacter U+FDD0, which stands for special tokens in grammars; leave it out",
      what);
}

std::vector<std::string> MarkedFormats::Excluded(const std::vector<std::string>& markers) const {
  std::vector<std::string> excluded;
  for (const std::string& marker : markers) {
    if (Signed(marker) == marker) excluded.push_back(marker);
  }
  if (!special.empty()) excluded.emplace_back(kGrammarSign);
  return excluded;
}

}  // namespace baton
