#include "common/grammar/schema_strings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/shortened.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/regex/regex_anchors.h"
#include "common/grammar/regex/regex_parser.h"
#include "common/grammar/regex/regex_text.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/string_formats.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKeywords[] = {"pattern", "format", "minLength", "maxLength"};

}  // namespace

Status SchemaStrings::Rewrite(Json& schema, const std::string& path) {
  Json keywords = Json::object();
  for (const char* name : kKeywords) {
    const auto found = schema.find(name);
    if (found == schema.end()) continue;
    keywords[name] = std::move(*found);
    schema.erase(found);
  }
  if (keywords.empty()) return OkStatus();
  const std::string key = keywords.dump();
  auto found = written_.find(key);
  if (found == written_.end()) {
    BATON_ASSIGN_OR_RETURN(Written written, Write(keywords, path));
    found = written_.emplace(key, std::move(written)).first;
  }
  schema["pattern"] = found->second.in_json;
  if (in_call_) schema[kTaggedPattern] = found->second.in_tags;
  return OkStatus();
}

std::map<std::string, SchemaStrings::Written> SchemaStrings::WriteFormats(bool in_call) {
  const GrammarLimits limits;
  SchemaStrings strings(limits, in_call);
  std::map<std::string, Written> formats;
  for (const std::string& name : FormatNames()) {
    formats.emplace(name, strings.WriteAnew({{"format", name}}, "").value());
  }
  return formats;
}

const std::map<std::string, SchemaStrings::Written>& SchemaStrings::WrittenFormats(bool in_call) {
  if (in_call) {
    static const std::map<std::string, Written> in_calls = WriteFormats(/*in_call=*/true);
    return in_calls;
  }
  static const std::map<std::string, Written> in_json = WriteFormats(/*in_call=*/false);
  return in_json;
}

StatusOr<SchemaStrings::Written> SchemaStrings::Write(const Json& keywords,
                                                      const std::string& path) {
  const Json format = keywords.value("format", Json());
  if (keywords.size() > 1 || !format.is_string()) return WriteAnew(keywords, path);
  const auto& formats = WrittenFormats(in_call_);
  const auto found = formats.find(format.get_ref<const std::string&>());
  if (found == formats.end()) return WriteAnew(keywords, path);
  return found->second;
}

StatusOr<SchemaStrings::Written> SchemaStrings::WriteAnew(const Json& keywords,
                                                          const std::string& path) {
  const bool has_pattern = keywords.contains("pattern");
  std::optional<RegexNode> node;
  std::string what = "the strings";
  if (keywords.contains("format")) {
    if (has_pattern) {
      return SchemaError(path + "/pattern", "pattern is not supported beside format");
    }
    BATON_ASSIGN_OR_RETURN(node, ReadFormat(keywords["format"], path));
    what = ShownPath(path + "/format");
  } else if (has_pattern) {
    BATON_ASSIGN_OR_RETURN(node, ReadPattern(keywords["pattern"], path + "/pattern"));
    what = ShownPath(path + "/pattern");
  } else {
    node = RepeatNode(ClassNode(CodePoints::All()), 0, RegexNode::kNoLimit);
  }
  BATON_ASSIGN_OR_RETURN(node,
                         WithLength(what,
                                    *std::move(node),
                                    keywords.value("minLength", int64_t{0}),
                                    keywords.value("maxLength", RegexNode::kNoLimit)));
  BATON_ASSIGN_OR_RETURN(std::string in_json, InJson(*node, path));
  return Written{std::move(in_json),
                 in_call_ ? RegexText(*node, RegexPlace::kInTags) : std::string()};
}

StatusOr<RegexNode> SchemaStrings::ReadFormat(const Json& format, const std::string& path) const {
  const std::string at = path + "/format";
  if (!format.is_string()) return SchemaError(at, "must be a string");
  const auto& name = format.get_ref<const std::string&>();
  const std::optional<std::string> regex = RegexOfFormat(name);
  if (!regex.has_value()) {
    return SchemaError(at,
                       fmt::format("the format '{}' is not supported; these are: {}",
                                   Shortened(name, kMaxQuotedMember),
                                   KnownFormats()));
  }
  BATON_ASSIGN_OR_RETURN(RegexNode node, ParseRegex(at, *regex, limits_));
  return MatchedSomewhere(at, std::move(node));
}

StatusOr<RegexNode> SchemaStrings::ReadPattern(const Json& pattern, const std::string& path) {
  if (!pattern.is_string()) return SchemaError(path, "must be a string");
  const std::string what = ShownPath(path);
  BATON_ASSIGN_OR_RETURN(RegexNode node,
                         ParseRegex(what, pattern.get_ref<const std::string&>(), limits_));
  const int64_t size = SizeOf(node);
  work_ += std::min(size * size, limits_.max_pattern_work + 1);
  if (work_ > limits_.max_pattern_work) {
    return SchemaError(path,
                       "the patterns of the schema have too many repetitions; about a thousand "
                       "characters are supported");
  }
  return MatchedSomewhere(what, std::move(node));
}

StatusOr<std::string> SchemaStrings::InJson(const RegexNode& node, const std::string& path) const {
  std::string text = RegexText(node, in_call_ ? RegexPlace::kInCall : RegexPlace::kInJson);
  if (text.size() <= limits_.max_text_bytes) return text;
  return SchemaError(path,
                     fmt::format("the expression of its strings has {} bytes with the escapes of "
                                 "JSON; at most {} are supported",
                                 text.size(),
                                 limits_.max_text_bytes));
}

}  // namespace baton
