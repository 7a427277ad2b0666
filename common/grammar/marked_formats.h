#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"

namespace baton {

// Stands in the text of a grammar before a marker that is a special token: U+FDD0, a noncharacter.
// Workers turn it into kSpecialSign, the byte with which the texts of these tokens begin. So no
// ordinary tokens can write the marker.
inline constexpr std::string_view kGrammarSign = "\xEF\xB7\x90";

// Refuses a client's text (`what`) with the sign. Errors: InvalidArgument.
Status CheckUnsigned(std::string_view what, std::string_view text);

// The formats of a model, and the markers of these that are special tokens of its vocabulary.
struct MarkedFormats {
  ToolCallFormat calls = ToolCallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  SpecialMarkers special = {};

  // `marker` as it stands in the text of a grammar.
  std::string Signed(std::string_view marker) const { return special.Signed(marker, kGrammarSign); }
  // What a text may not have that ends at `markers`: those without a special token; and the sign,
  // because such a text has no special tokens, if the model has any.
  std::vector<std::string> Excluded(const std::vector<std::string>& markers) const;
};

}  // namespace baton
