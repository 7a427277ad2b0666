#include "common/grammar/value_rules.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "common/base/shortened.h"
#include "common/chat_format/schema_types.h"
#include "common/grammar/number_rules.h"
#include "common/grammar/schema_references.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Of the rules of one tool, with some bytes for each schema that is visited. A larger grammar would
// be refused when it is converted (conversion_work.h).
constexpr size_t kMaxBytes = 80'000;
constexpr size_t kBytesOfVisit = 4;
// Schemas inside of each other, through references and without them.
constexpr int kMaxDepth = 150;
constexpr int kMaxArgumentsDepth = 16;

bool IsFree(const Json& schema) {
  if (!schema.is_object()) return true;
  return std::ranges::none_of(
      std::initializer_list<const char*>{"$ref", "anyOf", "allOf", "const", "enum", "type"},
      [&](const char* name) { return schema.contains(name); });
}

}  // namespace

StatusOr<std::string> ValueRules::Value(const Json& schema, const At& at) {
  BATON_RETURN_IF_ERROR(Count());
  if (depth_ >= kMaxDepth) return Refuse("have schemas that are nested too deep to be written");
  ++depth_;
  StatusOr<std::string> value = IsFree(schema) ? Free(at) : Typed(schema, at);
  --depth_;
  return value;
}

StatusOr<std::string> ValueRules::Typed(const Json& schema, const At& at) {
  if (const auto found = schema.find("$ref"); found != schema.end()) {
    return Reference(found->get_ref<const std::string&>(), at);
  }
  for (const char* keyword : {"anyOf", "allOf"}) {
    if (const auto found = schema.find(keyword); found != schema.end()) return OneOf(*found, at);
  }
  if (const auto found = schema.find("const"); found != schema.end()) return Constant(*found, at);
  if (const auto found = schema.find("enum"); found != schema.end()) {
    std::vector<std::string> options;
    for (const Json& value : *found) {
      BATON_RETURN_IF_ERROR(Count());
      BATON_ASSIGN_OR_RETURN(options.emplace_back(), Constant(value, at));
    }
    return EbnfChoice(options);
  }
  const Json& type = schema["type"];
  if (type == "object") return Object(schema, at);
  if (type == "array") return Array(schema, at);
  if (type == "string") return String(schema, at);
  if (type == "null") return Null(at);
  if (type == "boolean") return Scalar("(\"true\" | \"false\")", ValueTypes::kBoolean, at);
  const ValueTypes types = type == "integer" ? ValueTypes::kInteger : ValueTypes::kNumber;
  return Scalar(NumberExpression(schema, rules_), types, at);
}

StatusOr<std::string> ValueRules::Reference(const std::string& reference, const At& at) {
  const auto [known, added] = references_.try_emplace({reference, at});
  if (!added) return known->second;
  const std::string name = known->second = rules_.Declare();
  BATON_ASSIGN_OR_RETURN(const std::string value, Value(*TargetOf(whole(), reference), at));
  rules_.Define(name, value);
  return name;
}

StatusOr<std::string> ValueRules::OneOf(const Json& schemas, const At& at) {
  std::vector<std::string> options;
  for (const Json& schema : schemas) {
    BATON_ASSIGN_OR_RETURN(options.emplace_back(), Value(schema, at));
  }
  return EbnfChoice(options);
}

StatusOr<std::string> ValueRules::Arguments(const At& at) {
  std::vector<std::string> alternatives;
  BATON_RETURN_IF_ERROR(AddArguments(whole(), at, 0, alternatives));
  if (alternatives.empty()) return Refuse("must be an object, and not a value of const or enum,");
  std::string expression = EbnfChoice(alternatives);
  if (expression == kNoText) return Refuse("allow nothing that can be written");
  BATON_RETURN_IF_ERROR(Count());
  return expression;
}

Status ValueRules::AddArguments(const Json& schema,
                                const At& at,
                                int depth,
                                std::vector<std::string>& alternatives) {
  if (depth > kMaxArgumentsDepth) return Refuse("are nested too deep to be written");
  BATON_RETURN_IF_ERROR(Count());
  if (!schema.is_object()) return OkStatus();
  if (const auto found = schema.find("$ref"); found != schema.end()) {
    const Json* target = TargetOf(whole(), found->get_ref<const std::string&>());
    return AddArguments(*target, at, depth + 1, alternatives);
  }
  for (const char* keyword : {"anyOf", "allOf"}) {
    if (!schema.contains(keyword)) continue;
    for (const Json& branch : schema[keyword]) {
      BATON_RETURN_IF_ERROR(AddArguments(branch, at, depth + 1, alternatives));
    }
    return OkStatus();
  }
  if (schema.value("type", Json()) != "object") return OkStatus();  // no arguments of a call
  BATON_ASSIGN_OR_RETURN(alternatives.emplace_back(), Root(schema, at));
  return OkStatus();
}

StatusOr<std::optional<ValueRules::Others>> ValueRules::OthersOf(const Json& schema) const {
  const Json properties = schema.value("properties", Json::object());
  const auto least = schema.value("minProperties", int64_t{0});
  const auto most = schema.value("maxProperties", int64_t{-1});
  const auto patterns = schema.find("patternProperties");
  const auto additional = schema.find("additionalProperties");
  if (patterns != schema.end() && !patterns->empty()) {
    return Others{&patterns->begin().value(), patterns->begin().key(), least, most};
  }
  if (additional != schema.end() && *additional != false) {
    return Others{&*additional, {}, least, most};
  }
  const auto required = static_cast<int64_t>(schema.value("required", Json::array()).size());
  const auto count = static_cast<int64_t>(properties.size());
  if (least > required || (most >= 0 && most < count)) {
    return Refuse("have minProperties or maxProperties, which is not enforced");
  }
  return std::optional<Others>();
}

std::string ValueRules::Members(const std::vector<Member>& members,
                                std::string_view separator,
                                bool empty) {
  const std::string between = separator.empty() ? "" : EbnfText(separator) + " ";
  const auto first = std::ranges::find_if(members, &Member::required);
  std::vector<std::string> parts;
  if (first != members.end()) {
    for (auto one = members.begin(); one != members.end(); ++one) {
      const std::string& text = one->expression;
      const bool before = one < first;
      const std::string with = one == first ? text
                               : before && !between.empty()
                                   ? fmt::format("{} {}", text, EbnfText(separator))
                                   : between + text;
      parts.push_back(one->required ? with : fmt::format("({})?", with));
    }
    return EbnfSequence(parts);
  }
  if (between.empty() && empty) {
    for (const Member& one : members) parts.push_back(fmt::format("({})?", one.expression));
    return EbnfSequence(parts);
  }
  // One of them is the first. What follows it is a chain of rules, so each is written once.
  std::string rest = "\"\"";
  for (size_t i = members.size(); i-- > 0;) {
    const std::string member = rules_.Add(members[i].expression);
    parts.push_back(rest == "\"\"" ? member : fmt::format("{} {}", member, rest));
    rest = rules_.Add(rest == "\"\"" ? fmt::format("({}{})?", between, member)
                                     : fmt::format("({}{})? {}", between, member, rest));
  }
  std::ranges::reverse(parts);
  if (empty) parts.emplace_back("\"\"");
  return EbnfChoice(parts);
}

StatusOr<std::string> ValueRules::Items(const Json& schema,
                                        const At& item,
                                        std::string_view separator,
                                        bool empty) {
  const int64_t least = std::max(schema.value("minItems", int64_t{0}), int64_t{empty ? 0 : 1});
  const auto most = schema.value("maxItems", int64_t{-1});
  if (most >= 0 && most < least) return std::string(kNoText);
  const std::string between = separator.empty() ? "" : EbnfText(separator) + " ";
  std::vector<std::string> parts;
  for (const Json& one : schema.value("prefixItems", Json::array())) {
    if (most >= 0 && std::cmp_equal(parts.size(), most)) break;
    BATON_ASSIGN_OR_RETURN(const std::string value, Value(one, item));
    if (value == kNoText) return value;
    parts.push_back(fmt::format("{}{}", parts.empty() ? "" : between, Item(value)));
  }
  std::string value(kNoText);
  if (const auto items = schema.find("items"); items != schema.end() && *items != false) {
    BATON_ASSIGN_OR_RETURN(value, Value(*items, item));
  }
  const auto written = static_cast<int64_t>(parts.size());
  const int64_t more = std::max<int64_t>(least - written, 0);
  const int64_t up_to = most < 0 ? most : most - written;
  if (value == kNoText) {
    if (more > 0) return value;
    return EbnfSequence(parts);
  }
  const std::string first = rules_.Add(Item(value));
  const std::string next = between.empty() ? first : rules_.Add(between + first);
  if (written > 0 || between.empty()) {
    if (up_to != 0) parts.push_back(EbnfRepeat(next, more, up_to));
    return EbnfSequence(parts);
  }
  if (up_to == 0) return "\"\"";
  const std::string some =
      fmt::format("{} {}",
                  first,
                  EbnfRepeat(next, std::max<int64_t>(more - 1, 0), up_to < 0 ? up_to : up_to - 1));
  return more == 0 ? fmt::format("({})?", some) : some;
}

Status ValueRules::Count() {
  ++visited_;
  if (rules_.bytes() + visited_ * kBytesOfVisit <= kMaxBytes) return OkStatus();
  return Refuse("are too large to be written");
}

Status ValueRules::Refuse(std::string_view why) const {
  return InvalidArgument("the parameters of the tool '{}' {} in this model's format of calls",
                         Shortened(tool_.name, kMaxQuotedMember),
                         why);
}

Status ValueRules::RefuseName(std::string_view name, std::string_view why) const {
  return Refuse(
      fmt::format("have the name '{}', which {}", Shortened(name, kMaxQuotedMember), why));
}

}  // namespace baton
