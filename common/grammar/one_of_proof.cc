#include "common/grammar/one_of_proof.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/chat_format/schema_types.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// References that follow each other.
constexpr int kMaxHops = 16;
// Pairs of values to compare, times the nodes of the smaller one.
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
  ValueTypes types;
  Values values;  // all values, if `finite`
  bool finite = false;
  std::map<std::string, Values> fixed;  // of required properties with few values
};

class Prover {
 public:
  explicit Prover(const Json& root) : root_(root), types_(root) {}

  Status Prove(const Json& options) {
    std::vector<Option> known;
    for (const Json& option : options) known.push_back(Read(option));
    for (size_t i = 0; i < known.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const bool apart = Apart(known[j], known[i]);
        if (compared_ > kMaxCompared) {
          return InvalidArgument("the values of its schemas take too long to compare");
        }
        if (apart) continue;
        return InvalidArgument(
            "a value may match the schemas {} and {} of it, which is not supported: they must "
            "differ by their types, by const or enum, or by const or enum of a property that both "
            "require; anyOf allows both",
            j,
            i);
      }
    }
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
    option.types = types_.Of(schema);
    const Json& followed = Followed(schema);
    option.finite = ReadValues(followed, option.values);
    const Json* required = Member(followed, "required");
    const Json* properties = Member(followed, "properties");
    if (required == nullptr || !required->is_array() || properties == nullptr) return option;
    for (const Json& name : *required) {
      if (!name.is_string()) continue;
      const Json* property = Member(*properties, name.get_ref<const std::string&>().c_str());
      Values values;
      if (property == nullptr || !ReadValues(Followed(*property), values)) continue;
      option.fixed.try_emplace(name.get<std::string>(), std::move(values));
    }
    return option;
  }

  bool Apart(const Values& a, const Values& b) {
    for (const Value& one : a) {
      for (const Value& other : b) {
        compared_ += std::min(one.size, other.size);
        if (compared_ > kMaxCompared || *one.json == *other.json) return false;
      }
    }
    return true;
  }

  bool Apart(const Option& a, const Option& b) {
    const ValueTypes shared = a.types & b.types;
    if (shared == ValueTypes::kNone) return true;
    if (a.finite && b.finite) return Apart(a.values, b.values);
    if (!shared.Within(ValueTypes::kObject)) return false;
    return std::ranges::any_of(a.fixed, [&](const auto& fixed) {
      const auto found = b.fixed.find(fixed.first);
      return found != b.fixed.end() && Apart(fixed.second, found->second);
    });
  }

  const Json& root_;
  SchemaTypes types_;
  int64_t compared_ = 0;
};

}  // namespace

Status ProveOneOf(const Json& options, const Json& root) {
  return Prover(root).Prove(options);
}

}  // namespace baton
