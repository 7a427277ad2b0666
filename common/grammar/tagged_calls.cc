#include "common/grammar/tagged_calls.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/shortened.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/tool_schemas.h"
#include "common/grammar/format_parts.h"
#include "common/grammar/nested_calls.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/schema_strings.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// How a format writes an argument: key_begin NAME value_begin VALUE value_end.
struct Tags {
  std::string key_begin;
  std::string value_begin;  // {} stands for the type, in formats that state it
  std::string value_end;
  std::string_view is_string = {};    // the type of strings
  std::string_view is_other = {};     // a regular expression of other types
  std::vector<std::string> all = {};  // what no text may contain
};

// All tags of `format`. A value ends at any of them.
std::vector<std::string> TagsIn(ToolCallFormat format) {
  const CallSyntax& syntax = PlainSyntaxOf(format);
  std::vector<std::string> tags = syntax.All();
  for (const std::string& tag : {syntax.key_end, syntax.value_begin}) {
    if (tag.starts_with('<')) tags.push_back(tag);
  }
  return tags;
}

Tags DsmlTags() {
  return {.key_begin = "<｜DSML｜parameter name=\"",
          .value_begin = "\" string=\"{}\">",
          .value_end = "</｜DSML｜parameter>\n",
          .is_string = "true",
          .is_other = "false",
          .all = {"<｜DSML｜", "</｜DSML｜"}};
}

const Tags& PlainTagsOf(ToolCallFormat format) {
  static const std::map<ToolCallFormat, Tags> formats = {
      {ToolCallFormat::kQwenCoder,
       {.key_begin = "<parameter=",
        .value_begin = ">\n",
        .value_end = "\n</parameter>\n",
        .all = TagsIn(ToolCallFormat::kQwenCoder)}},
      {ToolCallFormat::kGlm,
       {.key_begin = "<arg_key>",
        .value_begin = "</arg_key>\n<arg_value>",
        .value_end = "</arg_value>\n",
        .all = TagsIn(ToolCallFormat::kGlm)}},
      {ToolCallFormat::kMiniMax,
       {.key_begin = "<parameter name=\"",
        .value_begin = "\">",
        .value_end = "</parameter>\n",
        .all = TagsIn(ToolCallFormat::kMiniMax)}},
      {ToolCallFormat::kDsml, DsmlTags()},
      {ToolCallFormat::kDeepSeekV4, DsmlTags()},
      {ToolCallFormat::kKimiK3,
       {.key_begin = "<|open|>argument key=\"",
        .value_begin = "\" type=\"{}\"<|sep|>",
        .value_end = "<|close|>argument<|sep|>",
        .is_string = "string",
        .is_other = "number|boolean|null|array|object",
        .all = {"<|open|>", "<|close|>"}}},
  };
  return formats.at(format);
}

Tags TagsOf(const MarkedFormats& formats) {
  Tags tags = PlainTagsOf(formats.calls);
  for (std::string* text : {&tags.key_begin, &tags.value_begin, &tags.value_end}) {
    *text = formats.Signed(*text);
  }
  tags.all = formats.Excluded(tags.all);
  return tags;
}

bool MayBeString(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  return type->is_array() ? std::ranges::count(*type, "string") > 0 : *type == "string";
}

class Writer {
 public:
  explicit Writer(Tags tags) : tags_(std::move(tags)) {}

  // An argument with the name that `key` writes.
  StatusOr<Json> Argument(const Json& key, const std::string& name, const Json& schema) const {
    SchemaTypes types(schema);
    const ParameterType type = {types.Of(schema)};
    const bool anything = type == ParameterType::kUnknown && IsFree(schema);
    Json options = Json::array();
    if (anything) {
      options.push_back(Value(key, /*is_string=*/true, FreeText()));
      if (!tags_.is_string.empty()) options.push_back(Value(key, false, InJson(true)));
    } else if (type.is_text()) {
      Json texts = Json::array();
      std::set<std::string> visited;
      AddTexts(schema, schema, visited, texts);
      if (texts.empty()) {
        return InvalidArgument(
            "the parameter '{}' has no value that can stand between the tags of this model's calls",
            Shortened(name, kMaxQuotedMember));
      }
      options.push_back(Value(key, /*is_string=*/true, OrPart(std::move(texts))));
    } else {
      options.push_back(Value(key, /*is_string=*/false, InJson(schema)));
    }
    return OrPart(std::move(options));
  }

 private:
  Json Value(const Json& key, bool is_string, Json content) const {
    Json elements = Json::array({TextPart(tags_.key_begin), key});
    const size_t type = tags_.value_begin.find("{}");
    elements.push_back(TextPart(tags_.value_begin.substr(0, type)));
    if (type != std::string_view::npos) {
      elements.push_back(is_string ? TextPart(tags_.is_string)
                                   : Json{{"type", "regex"}, {"pattern", tags_.is_other}});
      elements.push_back(TextPart(tags_.value_begin.substr(type + 2)));
    }
    elements.push_back(std::move(content));
    elements.push_back(TextPart(tags_.value_end));
    return SequencePart(std::move(elements));
  }

  // A value ends at any tag of the format, also inside of a JSON string. JSON never has special
  // tokens.
  Json InJson(Json schema) const {
    constexpr std::string_view kClosing = "</";
    std::vector<std::string_view> excluded;
    for (const std::string_view tag : tags_.all) {
      if (tag == kGrammarSign) continue;
      const bool closing = tag.starts_with(kClosing);
      if (!closing || std::ranges::find(excluded, kClosing) == excluded.end()) {
        excluded.push_back(closing ? kClosing : tag);
      }
    }
    return JsonSchemaOf(std::move(schema), excluded);
  }

  Json FreeText() const { return AnyTextPart(tags_.all); }

  // A schema without a keyword that constrains.
  static bool IsFree(const Json& schema) {
    return schema == true || schema.empty() || (schema.size() == 1 && schema.contains("$defs"));
  }

  // The texts of the strings that the schema `at` inside of `whole` allows. Null, which it may
  // allow as well, cannot be written.
  void AddTexts(const Json& whole,
                const Json& at,
                std::set<std::string>& visited,
                Json& out) const {
    if (!at.is_object()) return;
    if (const auto found = at.find("$ref"); found != at.end()) {
      const auto reference = found->get<std::string>();
      const Json* target = TargetOf(whole, reference);
      if (target != nullptr && visited.insert(reference).second) {
        AddTexts(whole, *target, visited, out);
      }
      return;
    }
    for (const char* keyword : {"anyOf", "allOf"}) {
      if (!at.contains(keyword)) continue;
      for (const Json& branch : at[keyword]) AddTexts(whole, branch, visited, out);
      return;
    }
    const auto add = [&](const Json& value) {
      if (value.is_string() && IsWritable(value.get_ref<const std::string&>())) {
        out.push_back(TextPart(value.get_ref<const std::string&>()));
      }
    };
    if (at.contains("const")) return add(at["const"]);
    if (at.contains("enum")) {
      for (const Json& value : at["enum"]) add(value);
      return;
    }
    if (!MayBeString(at)) return;
    if (const auto pattern = at.find(kTaggedPattern); pattern != at.end()) {
      out.push_back({{"type", "regex"}, {"pattern", *pattern}});
    } else {
      out.push_back(FreeText());
    }
  }

  bool IsWritable(std::string_view text) const {
    return std::ranges::none_of(
        tags_.all, [&](std::string_view tag) { return text.find(tag) != std::string_view::npos; });
  }

  const Tags tags_;
};

}  // namespace

bool EndsAtMarkers(ToolCallFormat format) {
  return IsTagged(format) || IsNested(format) || format == ToolCallFormat::kHarmony;
}

bool IsTagged(ToolCallFormat format) {
  return PlainSyntaxOf(format).style == CallStyle::kTagged;
}

StatusOr<GrammarPart> TaggedArguments(const MarkedFormats& formats,
                                      const CallableTool& tool,
                                      size_t& written) {
  BATON_ASSIGN_OR_RETURN(const auto alternatives, ReadArguments(tool, written));
  const Writer writer(TagsOf(formats));
  Json options = Json::array();
  for (const CallArguments& arguments : alternatives) {
    Json elements = Json::array();
    for (const CallArgument& one : arguments.declared) {
      BATON_ASSIGN_OR_RETURN(Json part, writer.Argument(TextPart(one.name), one.name, one.schema));
      elements.push_back(one.required ? std::move(part) : OptionalPart(std::move(part)));
    }
    if (arguments.others.has_value()) {
      const Json name = {{"type", "regex"}, {"pattern", "[A-Za-z_][A-Za-z0-9_]{0,255}"}};
      BATON_ASSIGN_OR_RETURN(Json part, writer.Argument(name, "others", *arguments.others));
      elements.push_back({{"type", "star"}, {"content", std::move(part)}});
    }
    if (elements.empty()) elements.push_back(TextPart(""));
    options.push_back(SequencePart(std::move(elements)));
  }
  return OrPart(std::move(options));
}

}  // namespace baton
