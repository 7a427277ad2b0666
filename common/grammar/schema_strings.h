#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/grammar/regex/regex_tree.h"

namespace baton {

struct GrammarLimits;

// The member that holds, beside `pattern`, the expression of the same string between the tags of a
// call. XGrammar ignores the member.
inline constexpr const char* kTaggedPattern = "taggedPattern";

// Rewrites the keywords of strings in one schema, because XGrammar anchors patterns, writes some
// characters of them without their escapes, and allows no escapes in strings with bounds of their
// length.
class SchemaStrings final {
 public:
  // `in_call`: for the arguments of a call; adds kTaggedPattern, too. `limits` outlives the object.
  SchemaStrings(const GrammarLimits& limits, bool in_call) : limits_(limits), in_call_(in_call) {}

  // Replaces `pattern`, `format`, `minLength` and `maxLength` of a schema at `path` by one
  // `pattern` for the inside of a JSON string, as XGrammar reads it. The schema allows strings.
  // Errors: InvalidArgument with the path of the keyword.
  Status Rewrite(nlohmann::ordered_json& schema, const std::string& path);

  // The tree of what a pattern matches somewhere, counted towards the work of the schema.
  StatusOr<RegexNode> ReadPattern(const nlohmann::ordered_json& pattern, const std::string& path);
  // As `pattern` of a rewritten schema.
  StatusOr<std::string> InJson(const RegexNode& node, const std::string& path) const;

 private:
  struct Written {
    std::string in_json;
    std::string in_tags;
  };

  StatusOr<Written> Write(const nlohmann::ordered_json& keywords, const std::string& path);
  StatusOr<Written> WriteAnew(const nlohmann::ordered_json& keywords, const std::string& path);
  // The formats without other keywords. They are written once, because their expressions are long.
  static std::map<std::string, Written> WriteFormats(bool in_call);
  static const std::map<std::string, Written>& WrittenFormats(bool in_call);
  StatusOr<RegexNode> ReadFormat(const nlohmann::ordered_json& format,
                                 const std::string& path) const;

  const GrammarLimits& limits_;
  const bool in_call_;
  int64_t work_ = 0;
  std::map<std::string, Written> written_;  // by the text of the keywords
};

}  // namespace baton
