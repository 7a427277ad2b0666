#include "common/grammar/schema_check.h"

#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Status Check(const std::string& schema) {
  return CheckedSchema(Json::parse(schema), GrammarLimits()).status();
}

TEST(SchemaCheck, AcceptsWhatIsEnforced) {
  for (
      const char* schema :
      {"true",
       R"({})",
       R"({"type": "string", "minLength": 1, "maxLength": 9})",
       R"({"type": "string", "pattern": "^[a-z]+$"})",
       R"({"type": "string", "pattern": "a\"b\\\\[\\n]"})",
       R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 20})",
       R"({"type": "string", "pattern": "a+b", "maxLength": 9})",
       R"({"patternProperties": {"a": {}, "b": {"type": "null"}}})",
       R"({"dependencies": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}})",
       R"({"type": "string", "format": "uuid", "minLength": 36})",
       R"({"pattern": "^a", "minLength": 2})",
       R"({"minimum": 1})",
       R"({"required": ["a"]})",
       R"({"type": "object", "properties": {"a": {}}, "required": ["b", "a"]})",
       R"({"type": "object", "patternProperties": {"^x-": {"type": "string"}}})",
       R"({"properties": {"a": {}}, "patternProperties": {"^x-": {"type": "string"}}})",
       R"({"anyOf": [{"required": ["a"]}, {}], "type": "object"})",
       R"({"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {"type": "object"}}})",
       R"({"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {}}})",
       R"({"$ref": "#/$defs/a", "minimum": 1, "$defs": {"a": {}}})",
       R"({"allOf": [{}, {"type": "object", "properties": {"a": {}}}, {"required": ["a"]}]})",
       R"({"allOf": [{"pattern": "a"}, {"pattern": "a", "minLength": 1}]})",
       R"({"enum": [1, 0], "minimum": 1})",
       R"({"enum": ["a", 1], "type": "string"})",
       R"({"allOf": [{"enum": [[1, 2], [3, 3]]}, {"uniqueItems": true}]})",
       R"({"properties": {"a": false, "b": {}}})",
       R"({"properties": {"xa": {"type": "string"}}, "patternProperties": {"a": {"minLength": 1}}})",
       R"({"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       R"({"oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]},
                     {"properties": {"k": {"const": 2}}, "required": ["k"]}]})",
       R"({"type": "array", "items": {"type": "null"}, "additionalItems": false})",
       R"({"type": "number", "multipleOf": 2})",
       R"({"type": "string", "format": "regex"})",
       R"({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
            "a": {"properties": {"k": {"const": 1}}, "required": ["k"], "type": "object"},
            "b": {"properties": {"k": {"enum": [2, 3]}}, "required": ["k"], "type": "object"}}})",
       R"({"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}]})",
       R"({"type": "string", "id": "x", "_format": "y", "readonly": true, "$id": "https://a/b"})",
       R"({"properties": {"a": {"$id": "https://a/b", "type": "null"}}})",
       R"({"type": "integer", "minimum": -3, "exclusiveMaximum": 9, "multipleOf": 3})",
       R"({"type": "array", "prefixItems": [{"type": "null"}], "items": false})",
       R"({"enum": [1, "a", null], "title": "T", "default": 1})",
       R"({"type": "string", "enum": ["a", "b"]})",
       R"({"type": "number", "const": 3})",
       R"({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null})",
       R"({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "string"}}})",
       R"({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": []})",
       R"({"type": ["object", "null"], "properties": {"x": {"type": "integer"}}, "required": ["x"]})",
       R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1})",
       R"({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 2})"}) {
    EXPECT_EQ(Check(schema), OkStatus()) << schema;
    const auto part = JsonSchemaPart(Json::parse(schema));
    ASSERT_TRUE(part.ok()) << schema;
    EXPECT_EQ(CheckGrammar(GrammarSpec(*part)), OkStatus()) << schema;
  }
}

TEST(SchemaCheck, RefusesByNameWhatIsNotEnforced) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not": {"type": "string"}})", "/not"},
      {R"({"if": {}, "then": {}})", "/if"},
      {R"({"type": "object", "dependentRequired": 1})", "/dependentRequired"},
      {R"({"type": "array", "uniqueItems": true})", "/uniqueItems"},
      {R"({"type": "array", "contains": {}})", "/contains"},
      {R"({"type": "object", "propertyNames": {}})", "/propertyNames"},
      {R"({"type": "object", "unevaluatedProperties": false})", "/unevaluatedProperties"},
      {R"({"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}})",
       "/properties/a/$dynamicRef"},
      {R"({"anyOf": [{"type": "string"}], "type": "object"})", "no value matches"},
      {R"({"allOf": [{"type": "string"}, {"type": ["array", "null"]}]})", "no value matches"},
      {R"({"allOf": [{}, {"not": {}}]})", "/allOf/1/not"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "/pattern"},
      {R"({"allOf": [{"prefixItems": [{}]}, {"items": {}}]})", "/prefixItems"},
      {R"({"allOf": [{"patternProperties": {"a": {}}}, {"patternProperties": {"b": {}}}]})",
       "/patternProperties"},
      {R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})", "more than 32 schemas"},
      {R"({"allOf": [{"$id": "https://a/b", "items": {"$ref": "#"}}, {}]})", "/allOf/0/$id"},
      {R"({"allOf": [{"$ref": "#/$defs/a/items"}, {}], "$defs": {"a": {"$id": "https://a/b",
            "items": {}}}})",
       "/$ref"},
      {R"({"allOf": [{"properties": {"b": {}}}, {"properties": {"c": {"$ref": "#/properties/b"}}}]})",
       "/properties/c/$ref"},
      {R"({"enum": ["a"], "format": "color"})", "is not known"},
      {R"({"properties": {"a": {"$id": "https://a/b", "const": 1, "minimum": 1,
            "default": {"$ref": "#"}}}})",
       "/properties/a/minimum"},
      {R"({"enum": [1], "type": "string"})", "/enum"},
      {R"({"properties": {"a": false}, "required": ["a"]})", "/properties/a"},
      {R"({"anyOf": [false, {"allOf": [{"type": "null"}, {"type": "array"}]}]})", "/anyOf"},
      {R"({"oneOf": [{"type": "string"}, {"maxLength": 3}]})", "/oneOf: a value may match"},
      {R"({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})",
       "/oneOf: a value may match"},
      {R"({"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}]})",
       "/oneOf: a value may match"},
      {R"({"type": "number", "multipleOf": 0.5})", "/multipleOf"},
      {R"({"type": "integer", "multipleOf": 0.5})", "/multipleOf"},
      {R"({"type": "integer", "multipleOf": 5, "minimum": 0})", "/multipleOf"},
      {R"({"type": "integer", "minimum": 0.5})", "/minimum"},
      {R"({"type": "integer", "maximum": 1e30})", "/maximum"},
      {R"({"type": "number", "minimum": 1e18})", "/minimum"},
      {R"({"const": 12345678901234567890123})", "/const"},
      {R"({"const": {"a": [-9223372036854775809]}})", "/const"},
      {R"({"enum": [1, 18446744073709551615]})", "/enum"},
      {R"({"type": "string", "format": "color"})", "/format"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "/pattern"},
      {R"({"type": "string", "pattern": "^(ab){1,3}(cd)?$", "minLength": 5, "maxLength": 5})",
       "/pattern"},
      {R"({"type": "string", "pattern": "a\\b"})", "/pattern"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "/maxLength"},
      {R"({"minimum": 1, "maxLength": 3})", "/maxLength"},
      {R"({"properties": {}, "additionalProperties": false, "required": ["b"]})", "/required"},
      {R"({"additionalProperties": {}, "minProperties": 2})", "/minProperties"},
      {R"({"patternProperties": {"a": {}}, "minProperties": 2})", "/minProperties"},
      {R"({"properties": {"a": {"$id": "https://a/b", "$ref": "#/$defs/b"}}, "$defs": {"b": {}}})",
       "/properties/a/$ref"},
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {
            "a": {"id": "b", "items": {"$ref": "#"}}}})",
       "/properties/a/items/$ref"},
      {R"({"type": "text"})", "/type"},
      {R"({"type": "array", "maxItems": 1000000})", "/maxItems"},
      {R"({"type": "string", "maxLength": -1})", "/maxLength"},
      {R"({"$ref": "https://example.org/schema"})", "/$ref"},
      {R"({"$ref": "#/$defs/none"})", "/$ref"},
      {R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})", "leads back"},
      {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})", "leads back"},
      {R"({"type": "array", "items": [{}]})", "/items"},
      {"false", "no value"}};
  for (const auto& [schema, named] : cases) {
    const Status status = Check(schema);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << schema;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(named)) << schema;
  }
}

// What stands in an annotation or a value is not checked, so it is never a schema.
TEST(SchemaCheck, ReferencesLeadOnlyToSchemasThatWereChecked) {
  const auto with_target = [](const std::string& target) {
    Json schema = Json::parse(R"({
      "type": "object", "title": "T", "required": ["a"], "example": {"type": "null"},
      "default": {"type": "object", "properties": {"x": {"not": {}}}},
      "properties": {
        "a": {"const": {"type": "null"}, "examples": [{"type": "null"}]},
        "e": {"enum": [{"type": "null"}]},
        "o": {"anyOf": [{"type": "null"}, {"type": "array", "items": true, "prefixItems": [{}]}]},
        "r": {}},
      "$defs": {"b/c~d": {"type": "boolean"}, "p%q": {}, "default": {"type": "integer"},
                "n": {"type": "object", "additionalProperties": {"type": "null"},
                      "definitions": {"m": {"type": "string"}}}}})");
    schema["properties"]["r"] = {{"$ref", target}};
    return schema;
  };
  for (const char* target : {"#/default",
                             "#/default/properties/x",
                             "#/example",
                             "#/title",
                             "#/required",
                             "#/properties",
                             "#/$defs",
                             "#/$defs/n/definitions",
                             "#/properties/a/const",
                             "#/properties/a/examples/0",
                             "#/properties/e/enum",
                             "#/properties/e/enum/0",
                             "#/properties/o/anyOf",
                             "#/properties/o/anyOf/2",
                             "#/properties/o/anyOf/00",
                             "#/$defs/b/c~d",
                             "#/$defs/p%q",
                             "#/$defs/p%25q",
                             "#/",
                             "#//",
                             "",
                             "/$defs/n",
                             "n",
                             "https://example.org/#/$defs/n"}) {
    const Status status = CheckedSchema(with_target(target), GrammarLimits()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << target;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("/properties/r/$ref: the reference"));
    EXPECT_THAT(std::string(Message(status)), HasSubstr("#/$defs/name"));
  }
  const std::pair<const char*, Json> places[] = {
      {"#/$defs/b~1c~0d", {{"type", "boolean"}}},
      {"#/$defs/default", {{"type", "integer"}}},
      {"#/$defs/n/definitions/m", {{"type", "string"}}},
      {"#/$defs/n/additionalProperties", {{"type", "null"}}},
      {"#/properties/a", {{"const", {{"type", "null"}}}}},
      {"#/properties/o/anyOf/0", {{"type", "null"}}},
      {"#/properties/o/anyOf/1/items", true},
      {"#/properties/o/anyOf/1/prefixItems/0", Json::object()}};
  for (const auto& [target, schema] : places) {
    const auto checked = CheckedSchema(with_target(target), GrammarLimits());
    ASSERT_TRUE(checked.ok()) << checked.status();
    EXPECT_EQ((*checked)["properties"]["r"], Json({{"$ref", "#/$defs/1"}})) << target;
    EXPECT_EQ((*checked)["$defs"], Json({{"1", schema}})) << target;
    EXPECT_EQ(CheckGrammar(GrammarSpec(JsonSchemaOf(*checked))), OkStatus()) << target;
  }
}

TEST(SchemaCheck, ReferencesThatLeadBackWithoutAValueBetweenAreRefused) {
  for (const char* schema :
       {R"({"$ref": "#"})",
        R"({"anyOf": [{"type": "null"}, {"anyOf": [{"$ref": "#"}]}]})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {}]},
            "b": {"allOf": [{"$ref": "#/$defs/c"}]}, "c": {"oneOf": [{"$ref": "#/$defs/a"}]}}})",
        R"({"type": "array", "items": {"$ref": "#/items"}})"}) {
    EXPECT_THAT(std::string(Message(Check(schema))), HasSubstr("leads back to itself")) << schema;
  }
  EXPECT_EQ(Check(R"({"$ref": "#/$defs/a", "$defs": {
                      "a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}}, {}]}}})"),
            OkStatus());
}

// Neither what constrains nothing nor names of definitions come to XGrammar, which names its rules
// after definitions.
TEST(SchemaCheck, OnlyWhatConstrainsIsPassedOn) {
  const std::string name(3000, 'n');
  const Json schema = {
      {"$schema", "s"},
      {"title", "t"},
      {"type", "object"},
      {"properties",
       {{"title", {{"$ref", "#/$defs/" + name}, {"description", "d"}}},
        {"u", {{"type", "array"}, {"items", {{"default", 1}}}, {"uniqueItems", false}}}}},
      {"$defs", {{name, {{"type", "null"}, {"examples", {1}}}}, {"unused", {{"type", "string"}}}}}};
  const Json expected = {
      {"type", "object"},
      {"properties",
       {{"title", {{"$ref", "#/$defs/1"}}}, {"u", {{"type", "array"}, {"items", Json::object()}}}}},
      {"additionalProperties", false},
      {"$defs", {{"1", {{"type", "null"}}}}}};
  EXPECT_EQ(CheckedSchema(schema, GrammarLimits()).value(), expected);
}

// The definition would be written out for each of the types.
TEST(SchemaCheck, RefusesWhatIsNamedTwice) {
  EXPECT_THAT(std::string(Message(Check(R"({"type": ["object", "null", "object"]})"))),
              HasSubstr("/type: must be one of"));
  EXPECT_THAT(std::string(Message(
                  Check(R"({"type": "object", "properties": {"a": {}}, "required": ["a", "a"]})"))),
              HasSubstr("/required: 'a' occurs twice"));
}

TEST(SchemaCheck, BoundsThePaths) {
  Json schema = {{"type", "null"}};
  for (int i = 0; i < 20; ++i) {
    schema = {{"type", "object"}, {"properties", {{std::string(250, 'n'), schema}}}};
  }
  EXPECT_THAT(std::string(Message(CheckedSchema(schema, GrammarLimits()).status())),
              HasSubstr("longer than 4096 bytes"));
}

TEST(SchemaCheck, ObjectsThatDeclarePropertiesAreClosed) {
  const auto checked = [](const char* schema) {
    return CheckedSchema(Json::parse(schema), GrammarLimits()).value();
  };
  EXPECT_EQ(checked(R"({"type": "object", "properties": {"a": {}}})")["additionalProperties"],
            false);
  EXPECT_EQ(checked(R"({"type": "object", "properties": {"a": {}}, "additionalProperties": true})")
                ["additionalProperties"],
            false);
  EXPECT_EQ(checked(R"({"type": "object", "properties": {}})")["additionalProperties"], false);
  EXPECT_EQ(checked(R"({"type": "object"})")["additionalProperties"], true);
  EXPECT_EQ(checked(R"({"type": "array"})")["items"], true);
}

// Whatever a client calls its properties, an error repeats at most 64 bytes of it, the end of the
// path, as whole characters.
TEST(SchemaCheck, ErrorsRepeatLittleOfTheSchema) {
  std::string name;
  while (name.size() < 3'000) name += "\u00e9";
  const Json faults[] = {{{"not", Json::object()}},
                         {{"type", "string"}, {"pattern", std::string(100, '(')}},
                         {{"type", "string"}, {"format", name}},
                         {{"additionalProperties", false}, {"required", {name}}},
                         {{"patternProperties", {{name, 1}}}},
                         {{"$ref", name}}};
  for (const Json& fault : faults) {
    const Json schema = {{"type", "object"}, {"properties", {{name, fault}}}};
    const Status status = CheckedSchema(schema, GrammarLimits()).status();
    ASSERT_EQ(status.code(), StatusCode::kInvalidArgument);
    const std::string message(Message(status));
    EXPECT_LT(message.size(), 500u) << message;
    EXPECT_THAT(message, StartsWith("…\u00e9"));
    EXPECT_TRUE(IsValidUtf8(message)) << message;
  }
}

TEST(SchemaCheck, BoundsTheNumberOfValues) {
  Json schema = {{"enum", Json::array()}};
  for (int i = 0; i < 1'000'000; ++i) schema["enum"].push_back(i);
  const Status status = CheckedSchema(schema, GrammarLimits()).status();
  EXPECT_THAT(std::string(Message(status)), HasSubstr("more than 20000"));
}

// XGrammar writes out what these keywords allow, which takes time that grows with their squares.
TEST(SchemaCheck, BoundsWhatIsWrittenOut) {
  const auto refusal = [](const Json& schema) {
    return std::string(Message(CheckedSchema(schema, GrammarLimits()).status()));
  };
  const auto object = [](int properties) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}, {"minProperties", 1}};
    for (int i = 0; i < properties; ++i) {
      schema["properties"][fmt::format("p{}", i)] = {{"type", "null"}};
    }
    return schema;
  };
  EXPECT_EQ(refusal(object(64)), "");
  EXPECT_THAT(refusal(object(65)), HasSubstr("minProperties"));
  const auto multiple = [](int value) { return Json{{"type", "integer"}, {"multipleOf", value}}; };
  EXPECT_EQ(refusal(multiple(1000)), "");
  EXPECT_THAT(refusal({{"type", "array"}, {"prefixItems", {multiple(6000), multiple(6000)}}}),
              HasSubstr("multipleOf"));
  const auto pattern = [](const char* text) { return Json{{"type", "string"}, {"pattern", text}}; };
  EXPECT_EQ(refusal(pattern("^([a-z]{30}-){30}$")), "");
  EXPECT_THAT(refusal(pattern("^([a-z]{40}-){40}$")), HasSubstr("too many repetitions"));
  EXPECT_THAT(refusal({{"type", "array"}, {"prefixItems", {pattern("a{800}"), pattern("b{800}")}}}),
              HasSubstr("too many repetitions"));
}

TEST(SchemaCheck, EqualStringsAndNumbersShareOneDefinition) {
  const Json email = {{"type", "string"}, {"format", "email"}};
  const Json schema = {{"type", "object"},
                       {"properties",
                        {{"a", email},
                         {"b", {{"anyOf", {email, {{"const", email}}}}}},
                         {"c", {{"type", "string"}, {"format", "uuid"}}},
                         {"d", {{"$ref", "#/$defs/shared-1"}}}}},
                       {"$defs", {{"shared-1", {{"type", "null"}}}}}};
  const Json checked = CheckedSchema(schema, GrammarLimits()).value();
  const Json reference = {{"$ref", "#/$defs/shared-1"}};
  EXPECT_EQ(checked["properties"]["a"], reference);
  EXPECT_EQ(checked["properties"]["b"]["anyOf"][0], reference);
  EXPECT_EQ(checked["properties"]["b"]["anyOf"][1]["const"], email) << "a value, not a schema";
  EXPECT_TRUE(checked["properties"]["c"].contains("pattern")) << "occurs once";
  EXPECT_EQ(checked["properties"]["d"], Json({{"$ref", "#/$defs/1"}}));
  EXPECT_EQ(checked["$defs"]["1"]["type"], "null");
  EXPECT_EQ(checked["$defs"]["shared-1"], CheckedSchema(email, GrammarLimits()).value());
}

}  // namespace
}  // namespace baton
