#include "router/api/grammar_members.h"

#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "router/api/json_members.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarInput::Kind;

Status Set(GrammarInput& out, GrammarInput in) {
  if (out.kind != Kind::kNone) {
    return InvalidMember(in.member,
                         "{} and {} are both given; an output can have one grammar",
                         out.member,
                         in.member);
  }
  out = std::move(in);
  return OkStatus();
}

// A schema is an object, or the text of one.
Status SetSchema(const std::string& name, const Json& schema, GrammarInput& out) {
  if (!schema.is_object() && !schema.is_string() && !schema.is_boolean()) {
    return Wrong(name, "a JSON schema");
  }
  std::string text = schema.is_string() ? schema.get<std::string>() : schema.dump();
  return Set(out, {.kind = Kind::kJsonSchema, .text = std::move(text), .member = name});
}

Status SetText(Kind kind, const std::string& name, const Json& text, GrammarInput& out) {
  if (!text.is_string()) return Wrong(name, "a string");
  return Set(out, {.kind = kind, .text = text.get<std::string>(), .member = name});
}

Status SetChoices(const std::string& name, const Json& choices, GrammarInput& out) {
  if (!choices.is_array()) return Wrong(name, "an array of strings");
  GrammarInput in{.kind = Kind::kChoice, .member = name};
  for (const Json& choice : choices) {
    if (!choice.is_string()) return Wrong(name, "an array of strings");
    in.choices.push_back(choice.get<std::string>());
  }
  return Set(out, std::move(in));
}

// One of vLLM's constraints, `kind`, whose member is called `name`.
Status SetConstraint(std::string_view kind,
                     const std::string& name,
                     const Json& value,
                     GrammarInput& out) {
  if (kind == "json") return SetSchema(name, value, out);
  if (kind == "choice") return SetChoices(name, value, out);
  return SetText(kind == "regex" ? Kind::kRegex : Kind::kEbnf, name, value, out);
}

// The format's type: true when the format is done, because it has no schema.
StatusOr<bool> ReadType(const std::string& name, const Json& format, GrammarInput& out) {
  if (!format.is_object()) return Wrong(name, "an object");
  const Json type = format.value("type", Json());
  if (type == "text") return true;
  if (type == "json_object") {
    BATON_RETURN_IF_ERROR(Set(out, {.kind = Kind::kJsonObject, .member = name}));
    return true;
  }
  if (type == "json_schema") return false;
  return Unsupported(name + ".type",
                     "is not supported; \"text\", \"json_object\" and \"json_schema\" are");
}

// `strict` changes nothing: every schema is enforced.
Status ReadSchemaObject(const std::string& name, const Json& object, GrammarInput& out) {
  const Json* schema = Member(object, "schema");
  if (schema == nullptr) return Wrong(name + ".schema", "a JSON schema");
  return SetSchema(name + ".schema", *schema, out);
}

Status ReadResponseFormat(const Json& format, GrammarInput& out) {
  BATON_ASSIGN_OR_RETURN(const bool done, ReadType("response_format", format, out));
  if (done) return OkStatus();
  const std::string name = "response_format.json_schema";
  const Json* object = Member(format, "json_schema");
  if (object == nullptr || !object->is_object()) return Wrong(name, "an object");
  BATON_RETURN_IF_ERROR(
      CheckKnown(*object, name + ".", {"name", "description", "schema", "strict"}));
  return ReadSchemaObject(name, *object, out);
}

Status ReadStructuredOutputs(const Json& object, GrammarInput& out) {
  if (!object.is_object()) return Wrong("structured_outputs", "an object");
  const std::string parent = "structured_outputs.";
  BATON_RETURN_IF_ERROR(
      CheckKnown(object, parent, {"json", "json_object", "regex", "choice", "grammar"}));
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const Json* value = Member(object, kind);
    if (value != nullptr) BATON_RETURN_IF_ERROR(SetConstraint(kind, parent + kind, *value, out));
  }
  bool any = false;
  BATON_RETURN_IF_ERROR(ReadBool(object, "json_object", any));
  if (!any) return OkStatus();
  return Set(out, {.kind = Kind::kJsonObject, .member = parent + "json_object"});
}

}  // namespace

Status ReadOutputGrammar(const Json& body, GrammarInput& out) {
  if (const Json* format = Member(body, "response_format"); format != nullptr) {
    BATON_RETURN_IF_ERROR(ReadResponseFormat(*format, out));
  }
  if (const Json* outputs = Member(body, "structured_outputs"); outputs != nullptr) {
    BATON_RETURN_IF_ERROR(ReadStructuredOutputs(*outputs, out));
  }
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string name = fmt::format("guided_{}", kind);
    const Json* value = Member(body, name);
    if (value != nullptr) BATON_RETURN_IF_ERROR(SetConstraint(kind, name, *value, out));
  }
  return OkStatus();
}

Status ReadTextFormat(const std::string& name, const Json& format, GrammarInput& out) {
  BATON_ASSIGN_OR_RETURN(const bool done, ReadType(name, format, out));
  if (done) return OkStatus();
  BATON_RETURN_IF_ERROR(
      CheckKnown(format, name + ".", {"type", "name", "description", "schema", "strict"}));
  return ReadSchemaObject(name, format, out);
}

Status ReadMessagesFormat(const Json& body, GrammarInput& out) {
  if (const Json* format = Member(body, "output_format"); format != nullptr) {
    BATON_RETURN_IF_ERROR(ReadTextFormat("output_format", *format, out));
  }
  const Json* config = Member(body, "output_config");
  if (config == nullptr) return OkStatus();
  if (!config->is_object()) return Wrong("output_config", "an object");
  BATON_RETURN_IF_ERROR(CheckKnown(*config, "output_config.", {"format"}));
  const Json* format = Member(*config, "format");
  if (format == nullptr) return OkStatus();
  return ReadTextFormat("output_config.format", *format, out);
}

}  // namespace baton::router
