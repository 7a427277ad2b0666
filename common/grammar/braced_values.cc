#include "common/grammar/braced_values.h"

#include <algorithm>
#include <utility>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "common/chat_format/call_names.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/markers.h"
#include "common/grammar/regex/regex_text.h"
#include "common/grammar/schema_strings.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// The parser bounds names, too.
constexpr std::string_view kName = "[A-Za-z_] [A-Za-z0-9_]{0,255}";
// The characters of a JSON string without an escape, and the escapes, which name no half of a
// surrogate pair. '<', which begins markers, is written as one.
constexpr std::string_view kPlainInJson = R"([^\x00-\x1f"\\<]*)";
constexpr std::string_view kEscapeInJson =
    R"("\\" (["\\/bfnrt] | "u" ([0-9A-Ca-cE-Fe-f] {0} {0} {0} | [Dd] [0-7] {0} {0} | )"
    R"([Dd] [89ABab] {0} {0} "\\u" [Dd] [C-Fc-f] {0} {0})))";
constexpr std::string_view kHexDigit = "[0-9A-Fa-f]";

// The keys of an object as Jinja's dictsort has them.
template <class Value>
void SortAsTemplate(std::vector<std::pair<std::string, Value>>& members) {
  std::ranges::stable_sort(
      members, {}, [](const auto& member) { return absl::AsciiStrToLower(member.first); });
}

const CallSyntax& GemmaSyntax() {
  return PlainSyntaxOf(ToolCallFormat::kGemma);
}

}  // namespace

BracedValues::BracedValues(Syntax syntax,
                           const MarkedFormats& formats,
                           const CallableTool& tool,
                           EbnfRules& rules)
    : ValueRules(tool, rules),
      json_(syntax == Syntax::kJson),
      mark_(EbnfText(json_ ? "\"" : formats.Signed(GemmaSyntax().value_begin))),
      excluded_(formats.Excluded(GemmaSyntax().All())) {}

std::string BracedValues::Free(const At&) {
  if (!free_.empty()) return free_;
  free_ = rules().Declare();
  const Json number = {{"type", "number"}};
  const std::string next = rules().Add(EbnfText(separator()) + " " + free_);
  const std::string member = rules().Add(UndeclaredKey({}) + " " + free_);
  const std::string more = rules().Add(EbnfText(separator()) + " " + member);
  rules().Define(free_,
                 EbnfChoice({Marked(AnyText()),
                             Value(number, {}).value_or(std::string(kNoText)),
                             "\"true\"",
                             "\"false\"",
                             Null({}),
                             fmt::format("\"[\" ({} {}*)? \"]\"", free_, next),
                             fmt::format("\"{{\" ({} {}*)? \"}}\"", member, more)}));
  return free_;
}

StatusOr<std::string> BracedValues::Constant(const Json& value, const At& at) {
  if (value.is_null()) return Null(at);
  if (value.is_string()) return ConstantString(value.get_ref<const std::string&>());
  if (value.is_object()) return ConstantObject(value);
  if (!value.is_array()) return EbnfText(value.dump());
  std::vector<std::string> items;
  for (const Json& inner : value) {
    BATON_ASSIGN_OR_RETURN(std::string item, Constant(inner, at));
    if (item == kNoText) return item;
    items.push_back(std::move(item));
  }
  return fmt::format("\"[\" {} \"]\"", EbnfSequence(items, EbnfText(separator())));
}

StatusOr<std::string> BracedValues::ConstantObject(const Json& value) {
  std::vector<std::pair<std::string, Json>> members;
  for (const auto& [name, inner] : value.items()) members.emplace_back(name, inner);
  if (!json_) SortAsTemplate(members);
  std::vector<std::string> parts;
  for (const auto& [name, inner] : members) {
    BATON_ASSIGN_OR_RETURN(const std::string key, Key(name));
    BATON_ASSIGN_OR_RETURN(std::string item, Constant(inner, {}));
    if (item == kNoText) return item;
    parts.push_back(fmt::format("{} {}", key, item));
  }
  return fmt::format("\"{{\" {} \"}}\"", EbnfSequence(parts, EbnfText(separator())));
}

std::string BracedValues::ConstantString(const std::string& text) const {
  if (json_) {
    std::string quoted = Json(text).dump();
    for (size_t at = 0; (at = quoted.find('<', at)) != std::string::npos;) {
      quoted.replace(at, 1, "\\u003c");
    }
    return EbnfText(quoted);
  }
  const bool writable = std::ranges::none_of(
      excluded_, [&](const std::string& marker) { return text.find(marker) != std::string::npos; });
  return writable ? Marked(EbnfText(text)) : std::string(kNoText);
}

std::string BracedValues::String(const Json& schema, const At&) {
  const auto found = schema.find(json_ ? "pattern" : kTaggedPattern);
  if (found == schema.end()) return Marked(AnyText());
  return Marked(rules().Add(EbnfOfRegex(found->get_ref<const std::string&>())));
}

StatusOr<std::string> BracedValues::Object(const Json& schema, const At& at) {
  BATON_ASSIGN_OR_RETURN(const std::optional<Others> others, OthersOf(schema));
  if (others.has_value()) {
    if (others->name_pattern.has_value() && !json_) {
      return Refuse("have patternProperties, which is not enforced");
    }
    BATON_ASSIGN_OR_RETURN(const std::string value, Value(*others->schema, at));
    const std::string member = rules().Add(UndeclaredKey(others->name_pattern) + " " + value);
    const std::string next = rules().Add(fmt::format("{} {}", EbnfText(separator()), member));
    if (others->most == 0) return "\"{\" \"}\"";
    const int64_t most = others->most < 0 ? -1 : others->most - 1;
    const std::string some = fmt::format(
        "{} {}", member, EbnfRepeat(next, std::max<int64_t>(others->least - 1, 0), most));
    return fmt::format("\"{{\" ({}){} \"}}\"", some, others->least > 0 ? "" : "?");
  }
  const Json required = schema.value("required", Json::array());
  std::vector<std::pair<std::string, const Json*>> properties;
  if (const auto found = schema.find("properties"); found != schema.end()) {
    for (const auto& [name, property] : found->items()) properties.emplace_back(name, &property);
  }
  if (!json_) SortAsTemplate(properties);
  std::vector<Member> members;
  for (const auto& [name, property] : properties) {
    BATON_ASSIGN_OR_RETURN(const std::string key, Key(name));
    BATON_ASSIGN_OR_RETURN(const std::string value, Value(*property, at));
    if (value == kNoText) return RefuseName(name, "has no value that can be written");
    members.push_back({name,
                       fmt::format("{} {}", key, value),
                       std::ranges::find(required, Json(name)) != required.end()});
  }
  return fmt::format("\"{{\" {} \"}}\"", Members(members, separator(), /*empty=*/true));
}

StatusOr<std::string> BracedValues::Array(const Json& schema, const At& at) {
  BATON_ASSIGN_OR_RETURN(const std::string items, Items(schema, at, separator(), /*empty=*/true));
  return items == kNoText ? items : fmt::format("\"[\" {} \"]\"", items);
}

std::string BracedValues::Marked(std::string_view text) const {
  return fmt::format("{} {} {}", mark_, text, mark_);
}

StatusOr<std::string> BracedValues::Key(std::string_view name) const {
  if (json_) return ConstantString(std::string(name)) + " \": \"";
  const bool plain = !name.empty() && name.size() <= kMaxCallNameBytes && name.front() != '"' &&
                     Trimmed(name) == name &&
                     name.find_first_of(":,{}[]<") == std::string_view::npos;
  if (plain) return EbnfText(fmt::format("{}:", name));
  return RefuseName(name,
                    "is not written: a name must not begin with a quotation mark, begin or end "
                    "with white space, or have one of : , { } [ ] <,");
}

std::string BracedValues::UndeclaredKey(const std::optional<std::string>& pattern) const {
  if (!json_) return fmt::format("{} \":\"", kName);
  const std::string name = pattern.has_value() ? EbnfOfRegex(*pattern) : std::string(kName);
  return fmt::format("{} \": \"", Marked(fmt::format("({})", name)));
}

std::string BracedValues::AnyText() {
  if (!json_) return rules().Add(EbnfTextWithout(excluded_));
  const std::string escape = rules().Add(fmt::format(kEscapeInJson, kHexDigit));
  return rules().Add(fmt::format("{} ({} {})*", kPlainInJson, escape, kPlainInJson));
}

}  // namespace baton
