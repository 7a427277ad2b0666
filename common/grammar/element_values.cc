#include "common/grammar/element_values.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/chat_format/call_names.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/minimax_m3_calls.h"
#include "common/grammar/regex/regex_text.h"
#include "common/grammar/schema_strings.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kItem = "item";
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kDigits = "0123456789";
// Tags that mean something else than a name: an item, a section of calls, the end of a call.
constexpr std::array<std::string_view, 3> kReserved = {kItem, "tool_call", "invoke"};

const std::string& Token() {
  return PlainSyntaxOf(ToolCallFormat::kMiniMaxM3).key_begin;
}

// The rule of what may follow `begin` in a name that is none of kReserved.
std::string NameAfter(const std::string& begin, EbnfRules& rules) {
  const std::string any = rules.Add("[A-Za-z0-9_]{0,255}");
  std::vector<std::string> options;
  if (!begin.empty() && std::ranges::find(kReserved, begin) == kReserved.end()) {
    options.emplace_back("\"\"");
  }
  std::string others;
  for (const char c : fmt::format("{}{}", kLetters, begin.empty() ? "" : kDigits)) {
    const std::string longer = begin + c;
    const bool reserved = std::ranges::any_of(
        kReserved, [&](std::string_view name) { return name.starts_with(longer); });
    if (!reserved) {
      others += c;
    } else {
      options.push_back(fmt::format("\"{}\" {}", c, NameAfter(longer, rules)));
    }
  }
  options.push_back(fmt::format("[{}] {}", others, any));
  return rules.Add(EbnfChoice(options));
}

}  // namespace

ElementValues::ElementValues(const MarkedFormats& formats,
                             const CallableTool& tool,
                             EbnfRules& rules)
    : ValueRules(tool, rules),
      token_(formats.Signed(Token())),
      excluded_(formats.Excluded({Token()})),
      types_(tool.stated.is_null() ? &tool.parameters : &tool.stated),
      json_(BracedValues::Syntax::kJson, formats, tool, rules) {}

bool ElementValues::ReadsJson(ValueTypes type, const At& at) {
  const ParameterType stated = ElementType(types_, at);
  return !stated.is_text() && (!stated.types.Has(ValueTypes::kString) || type.Within(stated.types));
}

bool ElementValues::ReadsNothing(std::string_view empty, const At& at) {
  return EmptyElement(ElementType(types_, at).types) == empty;
}

bool ElementValues::ReadsItems(const At& at) {
  return ElementIsArray(kItem, ElementType(types_, at).types);
}

// Text, or items.
std::string ElementValues::Free(const At&) {
  if (!free_.empty()) return free_;
  free_ = rules().Declare();
  rules().Define(free_, fmt::format("{} | {}+", AnyText(), rules().Add(Item(free_))));
  return free_;
}

StatusOr<std::string> ElementValues::Constant(const Json& value, const At& at) {
  if (value.is_null()) return Null(at);
  if (value.is_structured()) {
    const ValueTypes type = value.is_array() ? ValueTypes::kArray : ValueTypes::kObject;
    if (!ReadsJson(type, at)) return std::string(kNoText);
    return json_.Value(Json{{"const", value}}, {});
  }
  if (!value.is_string()) return Scalar(EbnfText(value.dump()), TypesOfValue(value), at);
  const auto& text = value.get_ref<const std::string&>();
  if (ElementType(types_, at).is_text()) {
    return IsWritable(text) ? EbnfText(text) : std::string(kNoText);
  }
  if (!ReadsJson(ValueTypes::kString, at)) return std::string(kNoText);
  return json_.Value(Json{{"const", value}}, {});
}

std::string ElementValues::String(const Json& schema, const At& at) {
  if (!ElementType(types_, at).is_text()) {
    if (!ReadsJson(ValueTypes::kString, at)) return std::string(kNoText);
    return json_.Value(schema, {}).value_or(std::string(kNoText));
  }
  const auto found = schema.find(kTaggedPattern);
  if (found == schema.end()) return AnyText();
  return rules().Add(EbnfOfRegex(found->get_ref<const std::string&>()));
}

std::string ElementValues::Scalar(std::string expression, ValueTypes type, const At& at) {
  return ReadsJson(type, at) ? expression : std::string(kNoText);
}

StatusOr<std::string> ElementValues::Object(const Json& schema, const At& at) {
  BATON_ASSIGN_OR_RETURN(const std::optional<Others> others, OthersOf(schema));
  const bool json = ReadsJson(ValueTypes::kObject, at);
  if (others.has_value()) {
    if (!json) return std::string(kNoText);
    return json_.Value(schema, {});
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<Member> members,
                         DeclaredMembers(schema, at, ReadsItems(at)));
  const bool nothing = ReadsNothing("{}", at);
  const bool optional = std::ranges::none_of(members, &Member::required);
  std::vector<std::string> options;
  if (!members.empty() || nothing) {
    options.push_back(Members(members, "", /*empty=*/nothing));
  }
  if (optional && !nothing && json) options.push_back(EbnfText("{}"));
  return EbnfChoice(options);
}

StatusOr<std::string> ElementValues::Root(const Json& schema, const At& at) {
  BATON_ASSIGN_OR_RETURN(const std::optional<Others> others, OthersOf(schema));
  if (!others.has_value()) {
    BATON_ASSIGN_OR_RETURN(const std::vector<Member> members,
                           DeclaredMembers(schema, at, /*items=*/false));
    return Members(members, "", /*empty=*/true);
  }
  if (others->name_pattern.has_value()) {
    return Refuse("have patternProperties, which is not enforced");
  }
  if (&schema != &whole()) {
    return Refuse("have alternatives with names that are not declared, which are not written");
  }
  BATON_ASSIGN_OR_RETURN(const std::string value, Value(*others->schema, types_.MemberOf(at, "")));
  const std::string element = rules().Add(UndeclaredElement(value));
  return EbnfRepeat(element, others->least, others->most);
}

StatusOr<std::vector<ValueRules::Member>> ElementValues::DeclaredMembers(const Json& schema,
                                                                         const At& at,
                                                                         bool items) {
  std::vector<Member> members;
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return members;
  const Json required = schema.value("required", Json::array());
  for (const auto& [name, property] : properties->items()) {
    if (items && name == kItem) {
      return RefuseName(name, "is not written in what may be an array, too,");
    }
    BATON_ASSIGN_OR_RETURN(const std::string value, Value(property, types_.MemberOf(at, name)));
    if (value == kNoText) return RefuseName(name, "has no value that can be written");
    BATON_ASSIGN_OR_RETURN(std::string element, Element(name, value));
    members.push_back(
        {name, std::move(element), std::ranges::find(required, Json(name)) != required.end()});
  }
  return members;
}

StatusOr<std::string> ElementValues::Array(const Json& schema, const At& at) {
  const bool json = ReadsJson(ValueTypes::kArray, at);
  const bool nothing = ReadsNothing("[]", at);
  std::vector<std::string> options;
  if (ReadsItems(at)) {
    BATON_ASSIGN_OR_RETURN(options.emplace_back(),
                           Items(schema, types_.ItemOf(at), "", /*empty=*/nothing));
  }
  const bool may_be_empty = schema.value("minItems", int64_t{0}) == 0;
  if (!nothing && json && may_be_empty) options.push_back(EbnfText("[]"));
  return EbnfChoice(options);
}

std::string ElementValues::Item(std::string value) {
  return fmt::format(
      "{} {} {}", EbnfText(Tag(kItem, false)), std::move(value), EbnfText(Tag(kItem, true)));
}

std::string ElementValues::Tag(std::string_view name, bool closing) const {
  return fmt::format("{}<{}{}>", token_, closing ? "/" : "", name);
}

bool ElementValues::IsWritable(std::string_view text) const {
  return std::ranges::none_of(excluded_, [&](const std::string& part) {
    return text.find(part) != std::string_view::npos;
  });
}

StatusOr<std::string> ElementValues::Element(std::string_view name, std::string_view value) const {
  const bool plain = !name.empty() && name.size() < kMaxCallNameBytes && name.front() != '/' &&
                     name != "tool_call" && !name.starts_with("invoke name=\"") &&
                     name.find('>') == std::string_view::npos;
  if (plain) {
    return fmt::format("{} {} {}", EbnfText(Tag(name, false)), value, EbnfText(Tag(name, true)));
  }
  return RefuseName(name,
                    "is not written: a name must not have a >, begin with a slash or be "
                    "'tool_call',");
}

std::string ElementValues::UndeclaredElement(std::string_view value) {
  const std::string name = NameAfter("", rules());
  const std::string token = EbnfText(token_);
  return fmt::format("{} \"<\" {} \">\" {} {} \"</\" {} \">\"", token, name, value, token, name);
}

}  // namespace baton
