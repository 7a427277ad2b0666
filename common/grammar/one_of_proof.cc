#include "common/grammar/one_of_proof.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/chat_format/schema_types.h"
#include "common/grammar/schema_keywords.h"
#include "common/grammar/value_match.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// References that follow each other.
constexpr int kMaxHops = 16;
// Pairs of values to compare, times the nodes of the smaller one, and pairs of properties.
constexpr int64_t kMaxCompared = 2'000'000;

struct Value {
  const Json* json = nullptr;
  int64_t size = 0;
};
using Values = std::vector<Value>;

int64_t SizeOf(const Json& value) {
  int64_t size = 1;
  if (value.is_structured()) {
    for (const Json& inner : value) size += SizeOf(inner);
  }
  return size;
}

const Json* Member(const Json& schema, const char* name) {
  if (!schema.is_object()) return nullptr;
  const auto found = schema.find(name);
  return found == schema.end() ? nullptr : &*found;
}

// What is known of the values of one option.
struct Option {
  ValueTypes matching;  // the types that match
  ValueTypes written;   // the types of outputs
  Values values;        // all values, if `finite`
  bool finite = false;
  std::set<std::string> required;
  std::set<std::string> declared;       // but those with the schema `false`
  std::set<std::string> forbidden;      // with the schema `false`
  std::map<std::string, Values> fixed;  // of properties with few values
  bool shut = false;                    // what matches has declared properties only
  bool closed = false;                  // outputs have properties of `names` only
  std::set<std::string> names;
};

class Separator {
 public:
  Separator(Json& options, const Json& root)
      : options_(options), root_(root), matching_(root), written_(root, Typeless::kImplied) {}

  Status Separate() {
    for (const Json& option : options_) known_.push_back(Read(option));
    for (size_t i = 0; i < known_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const bool apart = Misses(j, i) && Misses(i, j);
        if (compared_ > kMaxCompared) {
          return InvalidArgument("the values of its schemas take too long to compare");
        }
        if (apart || ((Misses(j, i) || Forbid(j, i)) && (Misses(i, j) || Forbid(i, j)))) continue;
        return InvalidArgument(
            "a value may match the schemas {} and {} of it, which is not supported: they must "
            "differ by their types, by const or enum, by const or enum of a property that both "
            "require, or by a property that one requires and the other forbids; anyOf allows both",
            j,
            i);
      }
    }
    for (const auto& [option, name] : forbidden_) options_[option]["properties"][name] = false;
    return OkStatus();
  }

 private:
  // The schema to which references and allOf of one schema lead.
  const Json& Followed(const Json& schema) const {
    const Json* at = &schema;
    for (int hop = 0; hop < kMaxHops; ++hop) {
      const Json* next = nullptr;
      if (const Json* target = Member(*at, "$ref"); target != nullptr && target->is_string()) {
        next = TargetOf(root_, target->get_ref<const std::string&>());
      } else if (const Json* all = Member(*at, "allOf");
                 all != nullptr && all->is_array() && all->size() == 1) {
        next = &(*all)[0];
      }
      if (next == nullptr) return *at;
      at = next;
    }
    return *at;
  }

  static bool ReadValues(const Json& schema, Values& out) {
    if (const Json* value = Member(schema, "const")) {
      out.push_back({value, SizeOf(*value)});
      return true;
    }
    const Json* values = Member(schema, "enum");
    if (values == nullptr || !values->is_array()) return false;
    for (const Json& value : *values) out.push_back({&value, SizeOf(value)});
    return true;
  }

  Option Read(const Json& schema) {
    Option option;
    option.matching = matching_.Of(schema);
    option.written = written_.Of(schema);
    const Json& followed = Followed(schema);
    option.finite = ReadValues(followed, option.values);
    const Json* required = Member(followed, "required");
    if (required != nullptr && required->is_array()) {
      for (const Json& name : *required) {
        if (name.is_string()) option.required.insert(name.get<std::string>());
      }
    }
    const Json* properties = Member(followed, "properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [name, property] : properties->items()) {
        (property == false ? option.forbidden : option.declared).insert(name);
        Values values;
        if (ReadValues(Followed(property), values)) option.fixed.emplace(name, std::move(values));
      }
    }
    const Json* others = Member(followed, "additionalProperties");
    option.shut =
        others != nullptr && *others == false && Member(followed, "patternProperties") == nullptr;
    const bool whole = std::ranges::any_of(
        kWholeKeywords, [&](std::string_view name) { return followed.contains(name); });
    const bool names = !option.required.empty() || (properties != nullptr && !properties->empty());
    option.closed = !whole && names;
    option.names = option.declared;
    option.names.insert(option.required.begin(), option.required.end());
    return option;
  }

  bool Apart(const Values& a, const Values& b) {
    for (const Value& one : a) {
      for (const Value& other : b) {
        compared_ += std::min(one.size, other.size);
        if (compared_ > kMaxCompared || SameValue(*one.json, *other.json)) return false;
      }
    }
    return true;
  }

  // Whether no output for one option matches the other.
  bool Misses(size_t from, size_t to) {
    const Option& a = known_[from];
    const Option& b = known_[to];
    const ValueTypes shared = a.written & b.matching;
    if (shared == ValueTypes::kNone) return true;
    if (a.finite && b.finite) return Apart(a.values, b.values);
    if (!shared.Within(ValueTypes::kObject)) return false;
    compared_ += static_cast<int64_t>(a.required.size() + b.required.size());
    const bool wrong = std::ranges::any_of(a.required, [&](const std::string& name) {
      if (b.forbidden.contains(name) || (b.shut && !b.declared.contains(name))) return true;
      const auto own = a.fixed.find(name);
      const auto other = b.fixed.find(name);
      return own != a.fixed.end() && other != b.fixed.end() && Apart(own->second, other->second);
    });
    if (wrong || !a.closed) return wrong;
    return std::ranges::any_of(b.required,
                               [&](const std::string& name) { return !a.names.contains(name); });
  }

  // Forbids a property in one option, so that no output for it matches the other. The values that
  // match the option stay the same, because the proofs of other pairs are about these.
  bool Forbid(size_t from, size_t to) {
    Option& a = known_[from];
    const Option& b = known_[to];
    if (!a.closed || options_[from].contains("$ref") || options_[from].contains("allOf") ||
        !(a.written & b.matching).Within(ValueTypes::kObject)) {
      return false;
    }
    const auto name = std::ranges::find_if(
        b.required, [&](const std::string& one) { return !a.required.contains(one); });
    if (name == b.required.end()) return false;
    a.names.erase(*name);
    forbidden_.emplace_back(from, *name);
    return true;
  }

  Json& options_;
  const Json& root_;
  SchemaTypes matching_;
  SchemaTypes written_;
  std::vector<Option> known_;
  std::vector<std::pair<size_t, std::string>> forbidden_;  // properties of options
  int64_t compared_ = 0;
};

}  // namespace

Status SeparateOptions(Json& options, const Json& root) {
  return Separator(options, root).Separate();
}

}  // namespace baton
