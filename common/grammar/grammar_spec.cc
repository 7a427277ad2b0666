#include "common/grammar/grammar_spec.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/grammar/marked_formats.h"
#include "common/grammar/regex/regex_anchors.h"
#include "common/grammar/regex/regex_parser.h"
#include "common/grammar/regex/regex_text.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/text_check.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// The most white space between two tokens of JSON. With more, small models write white space until
// max_tokens.
constexpr int kMaxWhiteSpace = 1;

// At least the bytes of the text of `value`. An escape of a character has six.
size_t MaxBytesOf(const Json& value) {
  constexpr size_t kNumber = 24;
  if (value.is_string()) return 2 + 6 * value.get_ref<const std::string&>().size();
  if (!value.is_structured()) return kNumber;
  size_t bytes = 2;
  for (const auto& [name, inner] : value.items()) bytes += 4 + 6 * name.size() + MaxBytesOf(inner);
  return bytes;
}

}  // namespace

GrammarPart JsonSchemaOf(Json schema, std::span<const std::string_view> excluded) {
  GrammarPart part = {{"type", "json_schema"},
                      {"json_schema", std::move(schema)},
                      {"max_whitespace_cnt", kMaxWhiteSpace}};
  if (!excluded.empty()) part["excludes"] = excluded;
  return part;
}

GrammarPart JsonObjectPart() {
  return JsonSchemaOf({{"type", "object"}, {"additionalProperties", true}});
}

StatusOr<GrammarPart> JsonSchemaPart(const Json& schema, const GrammarLimits& limits) {
  BATON_ASSIGN_OR_RETURN(Json checked, CheckedSchema(schema, limits));
  size_t bytes = MaxBytesOf(checked);  // writing the text takes longer
  if (bytes > limits.max_schema_bytes) bytes = checked.dump().size();
  if (bytes > limits.max_schema_bytes) {
    return InvalidArgument(
        "the schema has {} bytes; at most {} are supported", bytes, limits.max_schema_bytes);
  }
  return JsonSchemaOf(std::move(checked));
}

StatusOr<GrammarPart> RegexPart(std::string_view pattern, const GrammarLimits& limits) {
  constexpr std::string_view kWhat = "the regular expression";
  BATON_ASSIGN_OR_RETURN(RegexNode node, ParseRegex(kWhat, pattern, limits));
  BATON_ASSIGN_OR_RETURN(node, MatchedWhole(kWhat, std::move(node)));
  return Json{{"type", "regex"}, {"pattern", RegexText(node, RegexPlace::kPlain)}};
}

StatusOr<GrammarPart> ChoicePart(std::span<const std::string> choices,
                                 const GrammarLimits& limits) {
  if (choices.empty()) return InvalidArgument("there must be at least one choice");
  if (choices.size() > limits.max_choices) {
    return InvalidArgument(
        "there are {} choices; at most {} are supported", choices.size(), limits.max_choices);
  }
  const auto add = [](size_t sum, const std::string& choice) { return sum + choice.size(); };
  const size_t bytes = std::accumulate(choices.begin(), choices.end(), size_t{0}, add);
  if (bytes > limits.max_text_bytes) {
    return InvalidArgument(
        "the choices have {} bytes; at most {} are supported", bytes, limits.max_text_bytes);
  }
  if (std::ranges::any_of(choices, &std::string::empty)) {
    return InvalidArgument("a choice is empty");
  }
  if (!std::ranges::all_of(choices, IsValidUtf8)) {
    return InvalidArgument("a choice is not valid UTF-8");
  }
  Json elements = Json::array();
  for (const std::string& choice : choices) {
    BATON_RETURN_IF_ERROR(CheckUnsigned("a choice", choice));
    elements.push_back({{"type", "const_string"}, {"value", choice}});
  }
  return Json{{"type", "or"}, {"elements", std::move(elements)}};
}

StatusOr<GrammarPart> EbnfPart(std::string_view grammar, const GrammarLimits& limits) {
  BATON_RETURN_IF_ERROR(CheckEbnf("the grammar", grammar, limits));
  return Json{{"type", "grammar"}, {"grammar", grammar}};
}

std::string GrammarSpec(GrammarPart part) {
  return Json{{"type", "structural_tag"}, {"format", std::move(part)}}.dump();
}

}  // namespace baton
