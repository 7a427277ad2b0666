#include "common/chat_format/tool_schemas.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/chat_event.h"
#include "common/chat_format/tagged_value.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// The JSON of `text` between the tags of a parameter with a schema.
std::string Read(const Json& schema, std::string_view text) {
  const Json tools = {
      {{"name", "f"},
       {"parameters",
        {{"properties", {{"p", schema}}},
         {"$defs",
          {{"text", {{"type", "string"}}},
           {"loop", {{"$ref", "#/$defs/loop"}}},
           {"maybe", {{"anyOf", {{{"$ref", "#/$defs/text"}}, {{"type", "null"}}}}}}}}}}}};
  TaggedValue value(ToolSchemas(tools).TypeOf("f", "p"), false);
  ChatEvents events;
  value.Append(text, events);
  value.Finish(events);
  std::string json;
  for (const ChatEvent& event : events.Take()) json += event.text;
  return json;
}

std::string Read(const char* schema, std::string_view text) {
  return Read(Json::parse(schema), text);
}

TEST(ToolSchemas, ATextIsAStringWhereverTheSchemaSaysSo) {
  for (const char* schema : {R"({"type": "string"})",
                             R"({"type": ["string", "null"]})",
                             R"({"anyOf": [{"type": "string"}, {"type": "null"}]})",
                             R"({"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 9}]})",
                             R"({"allOf": [{"type": "string"}, {}]})",
                             R"({"$ref": "#/$defs/text"})",
                             R"({"$ref": "#/$defs/maybe"})",
                             R"({"enum": ["1", "2"]})",
                             R"({"enum": ["1", null]})",
                             R"({"const": "12"})",
                             R"({"minLength": 2, "pattern": "^."})",
                             R"({"anyOf": [{"format": "date"}, {"type": "null"}]})",
                             R"({"type": ["string", "integer"], "enum": ["12"]})"}) {
    EXPECT_EQ(Read(schema, "12"), R"("12")") << schema;
    EXPECT_EQ(Read(schema, "true"), R"("true")") << schema;
    EXPECT_EQ(Read(schema, " [1]"), R"(" [1]")") << schema;
  }
}

TEST(ToolSchemas, OfSeveralTypesTheTextDecides) {
  const char* mixed = R"({"anyOf": [{"type": "string"}, {"type": "boolean"}, {"enum": [3, {}]}]})";
  EXPECT_EQ(Read(mixed, "true"), "true");
  EXPECT_EQ(Read(mixed, "True"), "true");
  EXPECT_EQ(Read(mixed, "12"), "12");
  EXPECT_EQ(Read(mixed, "1.5"), R"("1.5")");
  EXPECT_EQ(Read(mixed, "null"), R"("null")");
  EXPECT_EQ(Read(mixed, "None"), R"("None")");
  EXPECT_EQ(Read(mixed, "[1]"), R"("[1]")");
  EXPECT_EQ(Read(mixed, R"("a")"), R"("a")");
  EXPECT_EQ(Read(R"({"type": "integer"})", "1.5"), "1.5") << "no string is allowed";
  EXPECT_EQ(Read(R"({"type": "object"})", "x"), R"("x")");
  EXPECT_EQ(Read("{}", "12"), "12");
  EXPECT_EQ(Read("true", "x"), R"("x")");
}

// The grammar of a forced call writes all listed values that match the schema, and a keyword of one
// type lets values of other types pass.
TEST(ToolSchemas, ListedValuesAreOfAnyTypeBesideKeywordsOfOne) {
  for (
      const char* schema :
      {R"({"enum": ["one", "three", 7, null, [1]], "maxLength": 3})",
       R"({"allOf": [{"enum": ["one", 7, null, [1]]}, {"anyOf": [{"maxLength": 3}, {"type": "array"}]},
                      {"type": ["string", "integer", "null", "array"]}]})"}) {
    EXPECT_EQ(Read(schema, "null"), "null") << schema;
    EXPECT_EQ(Read(schema, "7"), "7") << schema;
    EXPECT_EQ(Read(schema, "[1]"), "[1]") << schema;
    EXPECT_EQ(Read(schema, "one"), R"("one")") << schema;
  }
  const char* alternative =
      R"({"anyOf": [{"enum": ["one"]}, {"maxLength": 3}, {"type": "array"}]})";
  EXPECT_EQ(Read(alternative, "null"), R"("null")");
}

TEST(ToolSchemas, SchemasThatAreNotValidAllowAnything) {
  for (const char* schema : {R"({"$ref": "#/$defs/none"})",
                             R"({"$ref": "https://a/b"})",
                             R"({"$ref": 1})",
                             R"({"type": "text"})",
                             R"({"anyOf": 1})",
                             "1"}) {
    EXPECT_EQ(Read(schema, "12"), "12") << schema;
    EXPECT_EQ(Read(schema, "x"), R"("x")") << schema;
  }
  EXPECT_EQ(Read(R"({"$ref": "#/$defs/loop"})", "x"), R"("x")");
}

TEST(ToolSchemas, ParametersStandInReferencesAndAlternatives) {
  const Json tools = Json::parse(R"([{"name": "f", "parameters": {
    "anyOf": [{"$ref": "#/$defs/a"}, {"properties": {"q": {"type": "integer"}}}],
    "additionalProperties": {"type": "string"},
    "$defs": {"a": {"properties": {"p": {"type": "string"}, "q": {"type": "string"}},
                    "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#"}]}}}}])");
  const ToolSchemas schemas(tools);
  EXPECT_TRUE(schemas.TypeOf("f", "p").is_text());
  EXPECT_FALSE(schemas.TypeOf("f", "q").is_text());
  EXPECT_TRUE(schemas.TypeOf("f", "other").is_text());
  EXPECT_EQ(schemas.TypeOf("g", "p"), ParameterType::kUnknown);
}

// A chain or a net of references neither overflows the stack nor takes long.
TEST(ToolSchemas, HostileReferencesEnd) {
  Json parameters = {{"properties", Json::object()}, {"$defs", Json::object()}};
  for (int i = 0; i < 3'000; ++i) {
    const Json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    parameters["$defs"]["d" + std::to_string(i)] = {{"anyOf", {next, next, {{"$ref", "#"}}}}};
    parameters["properties"]["p" + std::to_string(i)] = next;
  }
  parameters["anyOf"] = {{{"$ref", "#/$defs/d0"}}, {{"$ref", "#/$defs/d0"}}};
  const ToolSchemas schemas(Json::array({{{"name", "f"}, {"parameters", parameters}}}));
  EXPECT_TRUE(schemas.Has("f"));
}

}  // namespace
}  // namespace baton
