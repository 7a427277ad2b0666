#include "common/grammar/tagged_calls.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/shortened.h"
#include "common/chat_format/tool_schemas.h"
#include "common/grammar/format_parts.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/schema_strings.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

struct Tags {
  std::string_view key_begin;
  std::string_view value_begin;  // behind the key; `typed` formats state whether it is a string
  std::string_view value_end;
  bool typed = false;
  std::vector<std::string_view> all;  // what no text may contain
};

const Tags& TagsOf(ToolCallFormat format) {
  static const Tags qwen_coder = {"<parameter=",
                                  ">\n",
                                  "\n</parameter>\n",
                                  false,
                                  {"</parameter>",
                                   "<parameter=",
                                   "</function>",
                                   "<function=",
                                   "</tool_call>",
                                   "<tool_call>",
                                   "</seed:tool_call>",
                                   "<seed:tool_call>"}};
  static const Tags glm = {
      "<arg_key>",
      "</arg_key>\n<arg_value>",
      "</arg_value>\n",
      false,
      {"</arg_value>", "<arg_value>", "</arg_key>", "<arg_key>", "</tool_call>", "<tool_call>"}};
  static const Tags dsml = {"<｜DSML｜parameter name=\"",
                            "\" string=\"{}\">",
                            "</｜DSML｜parameter>\n",
                            true,
                            {"</｜DSML｜", "<｜DSML｜"}};
  if (format == ToolCallFormat::kQwenCoder) return qwen_coder;
  return format == ToolCallFormat::kGlm ? glm : dsml;
}

bool MayBeString(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  return type->is_array() ? std::ranges::count(*type, "string") > 0 : *type == "string";
}

class Writer {
 public:
  explicit Writer(const Tags& tags) : tags_(tags) {}

  // An argument with the name that `key` writes.
  StatusOr<Json> Argument(const Json& key, const std::string& name, const Json& schema) const {
    SchemaTypes types(schema);
    const ParameterType type = {types.Of(schema)};
    const bool anything = type == ParameterType::kUnknown && IsFree(schema);
    Json options = Json::array();
    if (anything) {
      options.push_back(Value(key, "true", FreeText()));
      if (tags_.typed) options.push_back(Value(key, "false", InJson(true)));
    } else if (type.is_text()) {
      Json texts = Json::array();
      std::set<std::string> visited;
      AddTexts(schema, schema, visited, texts);
      if (texts.empty()) {
        return InvalidArgument(
            "the parameter '{}' has no value that can stand between the tags of this model's calls",
            Shortened(name, kMaxQuotedMember));
      }
      options.push_back(Value(key, "true", OrPart(std::move(texts))));
    } else {
      options.push_back(Value(key, "false", InJson(schema)));
    }
    return OrPart(std::move(options));
  }

 private:
  Json Value(const Json& key, std::string_view is_string, Json content) const {
    std::string begin(tags_.value_begin);
    if (const size_t at = begin.find("{}"); at != std::string::npos)
      begin.replace(at, 2, is_string);
    return SequencePart(Json::array({TextPart(tags_.key_begin),
                                     key,
                                     TextPart(begin),
                                     std::move(content),
                                     TextPart(tags_.value_end)}));
  }

  // A value ends at any tag of the format, also inside of a JSON string.
  Json InJson(Json schema) const {
    constexpr std::string_view kClosing = "</";
    std::vector<std::string_view> excluded = {kClosing};
    for (const std::string_view tag : tags_.all) {
      if (!tag.starts_with(kClosing)) excluded.push_back(tag);
    }
    return JsonSchemaOf(std::move(schema), excluded);
  }

  Json FreeText() const { return {{"type", "any_text"}, {"excludes", tags_.all}}; }

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

  const Tags& tags_;
};

}  // namespace

bool EndsAtMarkers(ToolCallFormat format) {
  return IsTagged(format) || format == ToolCallFormat::kHarmony;
}

bool IsTagged(ToolCallFormat format) {
  return format == ToolCallFormat::kQwenCoder || format == ToolCallFormat::kGlm ||
         format == ToolCallFormat::kDsml;
}

StatusOr<GrammarPart> TaggedArguments(ToolCallFormat format,
                                      const CallableTool& tool,
                                      size_t& written) {
  BATON_ASSIGN_OR_RETURN(const auto alternatives, ReadArguments(tool, written));
  const Writer writer(TagsOf(format));
  Json options = Json::array();
  for (const CallArguments& arguments : alternatives) {
    Json elements = Json::array();
    for (const CallArgument& one : arguments.declared) {
      BATON_ASSIGN_OR_RETURN(Json part, writer.Argument(TextPart(one.name), one.name, one.schema));
      elements.push_back(one.required ? std::move(part) : OptionalPart(std::move(part)));
    }
    if (arguments.others.has_value()) {
      const Json name = {{"type", "regex"}, {"pattern", "[A-Za-z_][A-Za-z0-9_]*"}};
      BATON_ASSIGN_OR_RETURN(Json part, writer.Argument(name, "others", *arguments.others));
      elements.push_back({{"type", "star"}, {"content", std::move(part)}});
    }
    if (elements.empty()) elements.push_back(TextPart(""));
    options.push_back(SequencePart(std::move(elements)));
  }
  return OrPart(std::move(options));
}

}  // namespace baton
