#include "common/grammar/value_match.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/chat_format/schema_types.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/regex/regex_anchors.h"
#include "common/grammar/regex/regex_parser.h"
#include "common/grammar/regex/regex_tree.h"
#include "common/grammar/schema_keywords.h"
#include "common/grammar/string_formats.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Answer = std::optional<bool>;

constexpr int64_t kMaxWork = 1'000'000;
constexpr int kMaxDepth = 64;                     // of schemas inside of each other, and references
constexpr double kMaxExact = 9007199254740992.0;  // 2^53

Answer Not(Answer one) {
  return one.has_value() ? Answer(!*one) : one;
}

Answer And(Answer one, Answer other) {
  if (one == false || other == false) return false;
  return one.has_value() && other.has_value() ? Answer(true) : std::nullopt;
}

Answer Or(Answer one, Answer other) {
  return Not(And(Not(one), Not(other)));
}

bool IsExact(const Json& number) {
  return std::abs(number.get<double>()) < kMaxExact;
}

// The order of two numbers; nothing where one was rounded or is no number.
std::optional<std::partial_ordering> Order(const Json& a, const Json& b) {
  if (!a.is_number() || !b.is_number()) return std::nullopt;
  const bool integers = a.is_number_integer() && b.is_number_integer();
  if (!integers && !(IsExact(a) && IsExact(b))) return std::nullopt;
  if (a < b) return std::partial_ordering::less;
  return b < a ? std::partial_ordering::greater : std::partial_ordering::equivalent;
}

// Whether `size` is at least, or at most, the number `bound`.
Answer Within(int64_t size, const Json& bound, bool least) {
  if (!bound.is_number_integer()) return std::nullopt;
  return least ? bound <= size : bound >= size;
}

// Whether a schema has a keyword that constrains values beside `name`.
bool ConstrainsBeside(const Json& schema, std::string_view name) {
  for (const auto& [other, ignored] : schema.items()) {
    if (other == name || IsDefinitions(other)) continue;
    if (IsEnforced(other) || IsConstraint(schema, other)) return true;
  }
  return false;
}

class Evaluation {
 public:
  Evaluation(const Json& root, const GrammarLimits& limits, int64_t& work)
      : root_(root), limits_(limits), work_(work) {}

  Answer Of(const Json& schema, const Json& value, int depth) {
    if (++work_ > kMaxWork || depth > kMaxDepth) return std::nullopt;
    if (schema.is_boolean()) return schema.get<bool>();
    if (!schema.is_object()) return std::nullopt;
    Answer all = true;
    for (const auto& [name, keyword] : schema.items()) {
      if (IsDefinitions(name) || (!IsEnforced(name) && !IsConstraint(schema, name))) continue;
      all = And(all, OfKeyword(schema, name, value, depth));
    }
    return all;
  }

 private:
  Answer OfKeyword(const Json& schema, const std::string& name, const Json& value, int depth) {
    const Json& keyword = schema[name];
    if (name == "type") {
      const Json type = {{"type", keyword}};
      return TypesOfValue(value).Within(SchemaTypes(type).Of(type));
    }
    if (name == "const") return SameValue(keyword, value);
    if (name == "enum") {
      if (!keyword.is_array()) return std::nullopt;
      work_ += static_cast<int64_t>(keyword.size());
      return std::ranges::any_of(keyword, [&](const Json& one) { return SameValue(one, value); });
    }
    if (name == "not") return Not(Of(keyword, value, depth + 1));
    if (name == "$ref") return OfReference(schema, value, depth);
    if (name == "anyOf" || name == "oneOf" || name == "allOf") {
      return OfCombination(name, keyword, value, depth);
    }
    const std::string_view type = TypeOfKeyword(name);
    if (type == "number") return value.is_number() ? OfNumber(name, keyword, value) : true;
    if (type == "string") return value.is_string() ? OfString(name, keyword, value) : true;
    if (type == "array" || name == "uniqueItems") {
      return value.is_array() ? OfArray(schema, name, value, depth) : true;
    }
    if (type == "object" || name == "propertyNames") {
      return value.is_object() ? OfObject(schema, name, value, depth) : true;
    }
    return std::nullopt;
  }

  Answer OfCombination(const std::string& name, const Json& schemas, const Json& value, int depth) {
    if (!schemas.is_array()) return std::nullopt;
    Answer all = true;
    Answer any = false;
    Answer several = false;
    for (const Json& schema : schemas) {
      const Answer one = Of(schema, value, depth + 1);
      several = Or(several, And(any, one));
      any = Or(any, one);
      all = And(all, one);
    }
    if (name == "allOf") return all;
    return name == "anyOf" ? any : And(any, Not(several));
  }

  // Until draft 7, the keywords beside a reference mean nothing.
  Answer OfReference(const Json& schema, const Json& value, int depth) {
    const Json& target = schema["$ref"];
    if (!target.is_string() || ConstrainsBeside(schema, "$ref")) return std::nullopt;
    const Json* found = TargetOf(root_, target.get_ref<const std::string&>());
    return found == nullptr ? std::nullopt : Of(*found, value, depth + 1);
  }

  static Answer OfNumber(const std::string& name, const Json& bound, const Json& value) {
    if (name == "multipleOf") {
      const bool known = bound.is_number_integer() && bound > 0 && IsExact(bound) && IsExact(value);
      if (!known) return std::nullopt;
      return std::fmod(value.get<double>(), bound.get<double>()) == 0;
    }
    const auto order = Order(value, bound);
    if (!order.has_value()) return std::nullopt;
    if (name == "minimum") return *order >= 0;
    if (name == "maximum") return *order <= 0;
    return name == "exclusiveMinimum" ? *order > 0 : *order < 0;
  }

  Answer OfString(const std::string& name, const Json& bound, const Json& value) {
    const auto& text = value.get_ref<const std::string&>();
    if (name == "pattern") return MatchesPattern(bound, text);
    if (name == "format") {
      if (!bound.is_string()) return std::nullopt;
      const auto regex = RegexOfFormat(bound.get_ref<const std::string&>());
      // The expressions are narrower than their formats.
      if (!regex.has_value() || MatchesPattern(*regex, text) != true) return std::nullopt;
      return true;
    }
    return Within(static_cast<int64_t>(CountCodePoints(text)), bound, name == "minLength");
  }

  Answer MatchesPattern(const Json& pattern, const std::string& text) {
    if (!pattern.is_string()) return std::nullopt;
    const auto parsed = ParseRegex("pattern", pattern.get_ref<const std::string&>(), limits_);
    if (!parsed.ok()) return std::nullopt;
    const auto anywhere = MatchedSomewhere("pattern", *parsed);
    if (!anywhere.ok()) return std::nullopt;
    work_ += std::min(SizeOf(*anywhere), kMaxWork) * static_cast<int64_t>(text.size() + 1);
    if (work_ > kMaxWork) return std::nullopt;
    return Matches(*anywhere, text);
  }

  Answer OfArray(const Json& schema, const std::string& name, const Json& value, int depth) {
    const Json& keyword = schema[name];
    if (name == "minItems" || name == "maxItems") {
      return Within(static_cast<int64_t>(value.size()), keyword, name == "minItems");
    }
    if (name == "uniqueItems") return HasNoEqualItems(value);
    const auto prefix = schema.find("prefixItems");
    if (prefix != schema.end() && !prefix->is_array()) return std::nullopt;
    const size_t before = prefix == schema.end() ? 0 : prefix->size();
    Answer all = true;
    for (size_t i = 0; i < value.size(); ++i) {
      if (name == "items" && i >= before) all = And(all, Of(keyword, value[i], depth + 1));
      if (name == "prefixItems" && i < before) all = And(all, Of(keyword[i], value[i], depth + 1));
    }
    return all;
  }

  Answer HasNoEqualItems(const Json& value) {
    work_ += static_cast<int64_t>(value.size() * value.size());
    if (work_ > kMaxWork) return std::nullopt;
    for (size_t i = 0; i < value.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (SameValue(value[i], value[j])) return false;
      }
    }
    return true;
  }

  Answer OfObject(const Json& schema, const std::string& name, const Json& value, int depth) {
    const Json& keyword = schema[name];
    if (name == "minProperties" || name == "maxProperties") {
      return Within(static_cast<int64_t>(value.size()), keyword, name == "minProperties");
    }
    if (name == "required") {
      if (!keyword.is_array()) return std::nullopt;
      return std::ranges::all_of(keyword, [&](const Json& one) {
        return one.is_string() && value.contains(one.get_ref<const std::string&>());
      });
    }
    Answer all = true;
    for (const auto& [member, inner] : value.items()) {
      if (name == "propertyNames") {
        all = And(all, Of(keyword, member, depth + 1));
      } else {
        all = And(all, OfMember(schema, name, member, inner, depth));
      }
    }
    return all;
  }

  // What the keyword `name`, which is about members, says of one of them.
  Answer OfMember(const Json& schema,
                  const std::string& name,
                  const std::string& member,
                  const Json& value,
                  int depth) {
    const Json& keyword = schema[name];
    if (name == "properties") {
      const auto found = keyword.find(member);
      return found == keyword.end() ? true : Of(*found, value, depth + 1);
    }
    Answer all = true;
    const Json patterns = schema.value("patternProperties", Json::object());
    Answer matched = schema.value("properties", Json::object()).contains(member);
    for (const auto& [pattern, inner] : patterns.items()) {
      const Answer matches = MatchesPattern(pattern, member);
      matched = Or(matched, matches);
      if (name == "patternProperties" && matches != false) {
        all = And(all, Or(Not(matches), Of(inner, value, depth + 1)));
      }
    }
    if (name == "patternProperties") return all;
    return Or(matched, Of(keyword, value, depth + 1));  // additionalProperties
  }

  const Json& root_;
  const GrammarLimits& limits_;
  int64_t& work_;
};

}  // namespace

bool SameValue(const Json& a, const Json& b) {
  if (a.is_array() && b.is_array()) return std::ranges::equal(a, b, SameValue);
  if (!a.is_object() || !b.is_object()) return a == b;
  if (a.size() != b.size()) return false;
  for (const auto& [name, value] : a.items()) {
    const auto found = b.find(name);
    if (found == b.end() || !SameValue(value, *found)) return false;
  }
  return true;
}

std::optional<bool> ValueMatcher::Matches(const Json& schema, const Json& value) {
  return Evaluation(root_, limits_, work_).Of(schema, value, 0);
}

}  // namespace baton
