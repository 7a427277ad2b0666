#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/chat_format/schema_types.h"
#include "common/grammar/keyword_merge.h"
#include "common/grammar/value_match.h"

namespace baton {

struct GrammarLimits;
class SchemaReferences;

// Makes one schema of those that values must match at once: the schemas of allOf and of
// dependencies, and keywords beside $ref, const, enum, anyOf, oneOf or allOf. XGrammar looks at one
// of these only.
class SchemaMerger final {
 public:
  using Json = nlohmann::ordered_json;

  // All outlive the object. `references` gets those that are replaced by what they lead to.
  SchemaMerger(const Json& root, const GrammarLimits& limits, SchemaReferences& references);

  // Whether `schema` has such schemas.
  bool Needed(const Json& schema);

  // A schema without them that allows the same values, or fewer; `false` where it allows none. Its
  // inner schemas may have such schemas again. The schema at `path` + "/anyOf/0", and others that
  // `schema` has itself, stay where they are. Errors: InvalidArgument with a path.
  StatusOr<Json> Merged(const Json& schema, const std::string& path);

 private:
  struct Place {
    const Json* schema = nullptr;
    std::string path;
  };
  // anyOf or oneOf.
  struct Choice {
    std::string keyword;
    const Json* options = nullptr;
    std::string path;
  };
  struct Parts {
    std::vector<Json> plain;   // schemas without kWholeKeywords
    std::vector<Json> values;  // arrays, of enum and const
    std::vector<Choice> choices;
    std::list<Json> made;  // choices that stand for other keywords
    Status refused;        // the first keyword that is not enforced
    bool impossible = false;
  };

  Status Collect(const Place& place, int depth, Parts& parts);
  Status CollectInner(const Place& place, int depth, Parts& parts);
  static void CollectDependencies(const Place& place, Parts& parts);
  Status CollectChoice(const Place& place, const char* keyword, Parts& parts) const;
  StatusOr<Place> Target(const Place& reference) const;
  StatusOr<Json> All(std::span<const Place> places,
                     std::span<const Choice> more,
                     const std::string& path,
                     int depth);
  // The values of enum and const that match all parts.
  StatusOr<Json> Filtered(const Parts& parts, const std::string& path);
  // The first of the choices, each of its options with all other parts.
  StatusOr<Json> Distributed(const Parts& parts, const std::string& path, int depth);
  Status Count(const Json& copied, const std::string& path);

  const Json& root_;
  SchemaReferences& references_;
  SchemaTypes types_;
  KeywordMerger keywords_;
  ValueMatcher matcher_;
  const char* const base_;  // the keyword that states the address of a schema
  int64_t copied_ = 0;      // values in the parts and results so far
};

}  // namespace baton
