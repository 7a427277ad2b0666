#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json_fwd.hpp>

namespace baton {

struct GrammarLimits;

// Whether two values are equal in JSON schema: objects whatever the order of their members, 1 and
// 1.0, but not 1 and true.
bool SameValue(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// Decides whether values that a schema states, as those of enum, match a schema of any keywords,
// also of those that no grammar can enforce. The work of all calls together is bounded.
class ValueMatcher final {
 public:
  // `root`: the whole schema, in which references lead. Both outlive the object.
  ValueMatcher(const nlohmann::ordered_json& root, const GrammarLimits& limits)
      : root_(root), limits_(limits) {}

  // Nothing where that is not known: with keywords that are not understood, or after much work.
  std::optional<bool> Matches(const nlohmann::ordered_json& schema,
                              const nlohmann::ordered_json& value);

 private:
  const nlohmann::ordered_json& root_;
  const GrammarLimits& limits_;
  int64_t work_ = 0;  // schemas and values that were compared, and characters of patterns
};

}  // namespace baton
