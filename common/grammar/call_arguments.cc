#include "common/grammar/call_arguments.h"

#include <set>
#include <string_view>
#include <utility>

#include "common/base/shortened.h"
#include "common/grammar/schema_references.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxAlternatives = 64;
// References and combinations around the properties.
constexpr int kMaxDepth = 16;

class Reader {
 public:
  Reader(const CallableTool& tool, size_t& written) : tool_(tool), written_(written) {}

  StatusOr<std::vector<CallArguments>> Read() {
    BATON_RETURN_IF_ERROR(Add(tool_.parameters, 0));
    if (alternatives_.empty())
      return Refuse("must be an object, and not a value of const or enum,");
    return std::move(alternatives_);
  }

 private:
  Status Refuse(std::string_view why) const {
    return InvalidArgument("the parameters of the tool '{}' {} in this model's format of calls",
                           Shortened(tool_.name, kMaxQuotedMember),
                           why);
  }

  // `schema` is whole: it has its definitions.
  Status Add(const Json& schema, int depth) {
    if (depth > kMaxDepth) return Refuse("are nested too deep to be written");
    if (!schema.is_object()) return OkStatus();
    if (schema.contains("$ref")) return Add(SchemaOfTarget(schema), depth + 1);
    for (const char* keyword : {"anyOf", "allOf"}) {
      if (!schema.contains(keyword)) continue;
      for (const Json& branch : schema[keyword]) {
        BATON_RETURN_IF_ERROR(Add(SchemaOfPart(schema, branch), depth + 1));
      }
      return OkStatus();
    }
    const Json type = schema.value("type", Json());
    if (type != "object") return OkStatus();  // no alternative for the arguments of a call
    if (alternatives_.size() == kMaxAlternatives) return Refuse("have too many alternatives");
    return AddObject(schema);
  }

  Status AddObject(const Json& schema) {
    CallArguments out;
    std::set<std::string> required;
    for (const Json& name : schema.value("required", Json::array())) required.insert(name);
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, property] : properties.items()) {
      if (!IsWritable(name)) {
        return Refuse(
            "have a name with white space, quotation marks, < or >, which is not written");
      }
      Json own = SchemaOfPart(schema, property);
      BATON_RETURN_IF_ERROR(CountArgumentBytes(tool_, own.dump().size(), written_));
      out.declared.push_back({name, std::move(own), required.contains(name)});
    }
    const auto count = static_cast<int64_t>(properties.size());
    const bool closed = schema.value("additionalProperties", Json(true)) == false;
    const bool counted =
        schema.value("minProperties", int64_t{0}) > static_cast<int64_t>(required.size()) ||
        (schema.contains("maxProperties") && (!closed || schema["maxProperties"] < count));
    if (counted) return Refuse("have minProperties or maxProperties, which is not enforced");
    if (schema.contains("patternProperties")) {
      return Refuse("have patternProperties, which is not enforced");
    }
    if (!closed)
      out.others = SchemaOfPart(schema, schema.value("additionalProperties", Json(true)));
    alternatives_.push_back(std::move(out));
    return OkStatus();
  }

  static bool IsWritable(std::string_view name) {
    return !name.empty() && name.find_first_of("\"<>= \t\r\n\f\v") == std::string_view::npos;
  }

  const CallableTool& tool_;
  size_t& written_;
  std::vector<CallArguments> alternatives_;
};

}  // namespace

StatusOr<std::vector<CallArguments>> ReadArguments(const CallableTool& tool, size_t& written) {
  return Reader(tool, written).Read();
}

Status CountArgumentBytes(const CallableTool& tool, size_t bytes, size_t& written) {
  written += bytes;
  if (written <= kMaxBytes) return OkStatus();
  return InvalidArgument(
      "the parameters of the tool '{}' are too large for the calls of this model: with all that "
      "may follow each other, they have more than {} bytes; use fewer optional parameters",
      Shortened(tool.name, kMaxQuotedMember),
      kMaxBytes);
}

}  // namespace baton
