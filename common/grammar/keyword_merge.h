#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

struct GrammarLimits;

// Combines the keywords of schemas into those of one schema.
class KeywordMerger final {
 public:
  using Json = nlohmann::ordered_json;

  // `limits` outlives the object.
  explicit KeywordMerger(const GrammarLimits& limits) : limits_(limits) {}

  // A schema of the values that match all of `parts`, or of some of them; `false` where no value
  // does. The parts have types and keywords of types, and the result has schemas of members and
  // items that have to be merged themselves. Objects have the properties that a part declares or
  // requires, and no others. `path` is that of the result. Errors: InvalidArgument where keywords
  // cannot be combined.
  StatusOr<Json> Merged(std::vector<Json> parts, const std::string& path);

 private:
  // Adds what `part` says of a property, as the schemas `out`.
  Status AddOfProperty(const Json& part,
                       const std::string& name,
                       const std::string& path,
                       Json& out);
  StatusOr<bool> MatchesName(const std::string& pattern,
                             const std::string& name,
                             const std::string& path);
  // The keywords about members in `out`; false where no object matches.
  StatusOr<bool> MergeObjects(const std::vector<Json>& parts, const std::string& path, Json& out);

  const GrammarLimits& limits_;
  int64_t matched_ = 0;  // the work of MatchesName
};

}  // namespace baton
