#include "common/chat_format/nested_types.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// The type of the value to which `path` leads from the arguments; "[]" leads to an item.
ParameterType TypeAt(const Json& schema, const std::vector<std::string>& path) {
  NestedTypes types(&schema);
  NestedTypes::Schemas schemas = types.Arguments();
  for (const std::string& step : path) {
    schemas = step == "[]" ? types.ItemOf(schemas) : types.MemberOf(schemas, step);
  }
  return types.TypeOf(schemas);
}

ParameterType TypeAt(const char* schema, const std::vector<std::string>& path) {
  return TypeAt(Json::parse(schema), path);
}

TEST(NestedTypes, FollowMembersAndItems) {
  const char* schema = R"({"properties": {
      "names": {"type": "array", "items": {"type": "string"}},
      "place": {"type": "object", "properties": {"zip": {"type": "string"}},
                "additionalProperties": {"type": "integer"}},
      "grid": {"items": {"items": {"properties": {"x": {"type": ["string", "null"]}}}}},
      "pair": {"prefixItems": [{"type": "string"}, {"type": "null"}], "items": {"type": "integer"}}}})";
  EXPECT_EQ(TypeAt(schema, {"names"}).types, ValueTypes::kArray);
  EXPECT_EQ(TypeAt(schema, {"names", "[]"}), ParameterType::kString);
  EXPECT_EQ(TypeAt(schema, {"place", "zip"}), ParameterType::kString);
  EXPECT_EQ(TypeAt(schema, {"place", "floor"}).types, ValueTypes::kInteger);
  EXPECT_TRUE(TypeAt(schema, {"grid", "[]", "[]", "x"}).is_text());
  EXPECT_EQ(TypeAt(schema, {"pair", "[]"}).types,
            ValueTypes::kString | ValueTypes::kNull | ValueTypes::kInteger);
}

TEST(NestedTypes, AreUnknownWhereTheSchemaSaysNothing) {
  const char* schema = R"({"properties": {"a": {"type": "object", "additionalProperties": true},
      "b": {"items": [{"type": "string"}]}, "c": 1, "d": {"properties": 2, "anyOf": 3}}})";
  for (const std::vector<std::string>& path : std::vector<std::vector<std::string>>{
           {"x"}, {"a", "x"}, {"a", "[]"}, {"b", "[]"}, {"c", "x"}, {"d", "x"}, {"[]"}}) {
    EXPECT_EQ(TypeAt(schema, path), ParameterType::kUnknown) << path.back();
  }
  NestedTypes none(nullptr);
  EXPECT_EQ(none.TypeOf(none.MemberOf(none.Arguments(), "a")), ParameterType::kUnknown);
}

TEST(NestedTypes, FollowReferencesAndAlternatives) {
  const char* schema = R"({"properties": {
      "todos": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/todo"}}, {"type": "null"}]}},
      "$defs": {"todo": {"allOf": [{"properties": {"id": {"type": "string"}}},
                                   {"properties": {"next": {"$ref": "#/$defs/todo"}}}]}}})";
  EXPECT_EQ(TypeAt(schema, {"todos", "[]", "id"}), ParameterType::kString);
  EXPECT_EQ(TypeAt(schema, {"todos", "[]", "next", "next", "id"}), ParameterType::kString);
  const char* two = R"({"oneOf": [{"properties": {"a": {"type": "string"}}},
                                  {"properties": {"a": {"type": "integer"}}},
                                  {"additionalProperties": {"type": "boolean"}}]})";
  EXPECT_EQ(TypeAt(two, {"a"}).types, ValueTypes::kString | ValueTypes::kInteger);
  EXPECT_EQ(TypeAt(two, {"b"}).types, ValueTypes::kBoolean);
  EXPECT_EQ(TypeAt(R"({"$ref": "#"})", {"a"}), ParameterType::kUnknown);
}

TEST(NestedTypes, TheSchemasOfAValueAreBounded) {
  Json schema = {{"anyOf", Json::array()}};
  const Json one = {{"properties", {{"a", {{"type", "string"}}}}}};
  for (int i = 0; i < 100; ++i) schema["anyOf"].push_back(one);
  NestedTypes types(&schema);
  EXPECT_EQ(types.MemberOf(types.Arguments(), "a").size(), NestedTypes::kMaxSchemas - 1);
}

}  // namespace
}  // namespace baton
