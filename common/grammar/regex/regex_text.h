#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/grammar/regex/regex_tree.h"

namespace baton {

// Where the texts of an expression stand.
enum class RegexPlace : uint8_t {
  kPlain,   // on their own
  kInJson,  // inside of the quotation marks of a JSON string
  kInCall,  // the same, in a call, where '<' is an escape as well: it begins the markers of formats
  kInTags,  // between the tags of a call, where a value has no '<'
};

// `node`, which has no anchors, in the notation that XGrammar reads, for whole texts. In JSON, a
// quotation mark, a backslash and a control character are written as an escape, and other
// characters as they are. XGrammar always reads it as EBNF, and as it is meant.
std::string RegexText(const RegexNode& node, RegexPlace place);

// `regex`, which RegexText wrote, as the body of a rule of EBNF.
std::string EbnfOfRegex(std::string_view regex);

}  // namespace baton
