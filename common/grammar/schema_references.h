#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

// Bytes of a client's text that an error about a schema repeats.
inline constexpr size_t kMaxQuotedMember = 64;

// The references of one schema, and the places to which they may lead. A checker reports both while
// it visits the schema. What it has not visited, such as a default value, is never a schema.
class SchemaReferences final {
 public:
  // `root`: the whole schema, which outlives the object.
  explicit SchemaReferences(const nlohmann::ordered_json& root);

  // Paths are JSON pointers (RFC 6901), "" for the whole schema.
  void AddPlace(const std::string& path) {
    if (wanted_.contains(path)) places_.insert(path);
  }
  void AddReference(std::string at, std::string target) {
    references_.push_back({std::move(at), std::move(target), /*replaced=*/false});
  }
  // A reference in whose place stands what it leads to.
  void AddReplaced(std::string at, std::string target) {
    references_.push_back({std::move(at), std::move(target), /*replaced=*/true});
  }

  // An error about a reference that leads to no schema.
  static Status Unknown(const std::string& at, const std::string& target);

  // Moves each schema to which a reference leads to a definition "#/$defs/N" of `root`, drops all
  // other definitions, and lets all references lead to the new ones, or to "#". So what is
  // converted later depends neither on names that a client chose nor on what stands elsewhere in
  // its schema. Errors: InvalidArgument, with the path of the reference, for one that leads to no
  // place or, without a value between, back to itself.
  Status Resolve(nlohmann::ordered_json& root) const;

 private:
  struct Reference {
    std::string at;
    std::string target;
    bool replaced = false;
  };

  Status CheckTargets() const;
  // Schema 0 is the whole one, and schema i definition i. `firsts`: a reference to each.
  static Status CheckCircles(const std::vector<nlohmann::ordered_json>& schemas,
                             const std::vector<const Reference*>& firsts);

  const nlohmann::ordered_json& root_;
  std::set<std::string> wanted_;  // all that could be targets, so that few places are kept
  std::set<std::string> places_;
  std::vector<Reference> references_;
};

// The schema `part` inside of `root`, both resolved, as a schema of its own: with the definitions
// to which its references lead.
nlohmann::ordered_json SchemaOfPart(const nlohmann::ordered_json& root,
                                    const nlohmann::ordered_json& part);

// The definition to which the resolved schema `reference` leads, as a schema of its own.
nlohmann::ordered_json SchemaOfTarget(const nlohmann::ordered_json& reference);

// Whether there is something that looks like a reference anywhere in `value`.
bool Refers(const nlohmann::ordered_json& value);

// The path of a member of the value at `path` (RFC 6901).
std::string MemberPath(const std::string& path, std::string_view name);
// An error about the schema at `path`. It repeats the end of a long path only.
Status SchemaError(const std::string& path, std::string_view why);
// `path` as errors show it.
std::string ShownPath(const std::string& path);

}  // namespace baton
