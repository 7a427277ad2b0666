#include "common/grammar/schema_check.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/shortened.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_places.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/shared_schemas.h"
#include "common/grammar/text_check.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of a client's text that an error repeats.
constexpr size_t kMaxQuoted = 64;
// Bytes of a path. A path is built for each schema.
constexpr size_t kMaxPath = 4096;

// Keywords that constrain nothing.
constexpr std::string_view kAnnotations[] = {"title",
                                             "description",
                                             "default",
                                             "examples",
                                             "$schema",
                                             "$id",
                                             "$comment",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "$defs",
                                             "definitions",
                                             "discriminator",
                                             "$anchor",
                                             "contentMediaType",
                                             "contentEncoding",
                                             "externalDocs",
                                             "example",
                                             "nullable"};
// Each of these decides alone what a value is: XGrammar does not look at other keywords beside it.
constexpr std::string_view kWhole[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::string_view kObject[] = {
    "properties", "required", "additionalProperties", "minProperties", "maxProperties"};
constexpr std::string_view kArray[] = {"items", "prefixItems", "minItems", "maxItems"};
constexpr std::string_view kString[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kNumber[] = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
constexpr std::string_view kTypes[] = {
    "object", "array", "string", "number", "integer", "boolean", "null"};
// Formats whose syntax XGrammar enforces. "date-time" and "date" allow February 30th.
constexpr std::string_view kFormats[] = {"date",
                                         "time",
                                         "date-time",
                                         "duration",
                                         "email",
                                         "hostname",
                                         "ipv4",
                                         "ipv6",
                                         "uri",
                                         "uri-reference",
                                         "uri-template",
                                         "uuid",
                                         "json-pointer",
                                         "relative-json-pointer"};

template <class List>
bool In(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

std::string_view TypeNameOf(const Json& value) {
  if (value.is_number_integer()) return "integer";
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    return number == std::floor(number) ? "integer" : "number";
  }
  return value.type_name();
}

bool HasType(const Json& value, const Json& types) {
  const std::string_view name = TypeNameOf(value);
  const auto fits = [&](const Json& type) {
    return type == name || (type == "number" && name == "integer");
  };
  return types.is_array() ? std::ranges::any_of(types, fits) : fits(types);
}

// Whether `pattern` names a character that a JSON string must escape, outside of negated classes.
// XGrammar writes such a character as it is.
bool WritesRaw(std::string_view pattern) {
  bool negated = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '[' && !negated) negated = next == '^';
    if (c == ']') negated = false;
    const bool raw = c == '"' || static_cast<unsigned char>(c) < 0x20;
    const bool escaped = c == '\\' && std::string_view("\\\"nrtfv0xucpPk123456789").find(next) !=
                                          std::string_view::npos;
    if (!negated && (raw || escaped)) return true;
    if (c == '\\') ++i;
  }
  return false;
}

class Checker {
 public:
  Checker(const Json& root, const GrammarLimits& limits)
      : root_(root), limits_(limits), references_(root) {}

  StatusOr<Json> Check() {
    Json out = root_;
    BATON_RETURN_IF_ERROR(CheckSchema(out, ""));
    BATON_RETURN_IF_ERROR(references_.Resolve(out));
    ShareEqualSchemas(out);
    return out;
  }

 private:
  // All checks of one schema; `path` is a JSON pointer.
  Status CheckSchema(Json& schema, const std::string& path) {
    BATON_RETURN_IF_ERROR(Count(path));
    if (path.size() > kMaxPath) return Refuse(path, "its path is longer than 4096 bytes");
    references_.AddPlace(path);
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return OkStatus();
      return Refuse(path, "the schema `false` allows no value");
    }
    if (!schema.is_object()) return Refuse(path, "a schema must be an object or true");
    BATON_RETURN_IF_ERROR(CheckKeywords(schema, path));
    DropAnnotations(schema);
    BATON_RETURN_IF_ERROR(CheckDefinitions(schema, path));
    for (const std::string_view whole : kWhole) {
      const auto found = schema.find(whole);
      if (found != schema.end()) return CheckWhole(schema, whole, *found, path);
    }
    BATON_RETURN_IF_ERROR(CheckType(schema, path));
    BATON_RETURN_IF_ERROR(CheckString(schema, path));
    BATON_RETURN_IF_ERROR(CheckNumber(schema, path));
    BATON_RETURN_IF_ERROR(CheckCounts(schema, path));
    BoundLength(schema);
    WriteIpv4(schema);
    BATON_RETURN_IF_ERROR(CheckArray(schema, path));
    return CheckObject(schema, path);
  }

  Status Count(const std::string& path) {
    if (++values_ <= limits_.max_schema_values) return OkStatus();
    return Refuse(path,
                  fmt::format("the schema has more than {} schemas and enumerated values",
                              limits_.max_schema_values));
  }

  // The path of a member of the value at `path` (RFC 6901).
  static std::string At(const std::string& path, std::string_view name) {
    return absl::StrCat(
        path, "/", absl::StrReplaceAll({name.data(), name.size()}, {{"~", "~0"}, {"/", "~1"}}));
  }

  static Status Refuse(const std::string& path, std::string_view why) {
    return SchemaError(path, why);
  }

  static Status CheckKeywords(const Json& schema, const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      const bool known = In(kAnnotations, name) || In(kWhole, name) || name == "type" ||
                         In(kObject, name) || In(kArray, name) || In(kString, name) ||
                         In(kNumber, name);
      if (known) continue;
      if (name == "uniqueItems" && value == false) continue;
      return Refuse(At(path, name),
                    fmt::format("the keyword {} is not supported", Shortened(name, kMaxQuoted)));
    }
    return OkStatus();
  }

  // What constrains nothing is not passed on. Two schemas that differ in it are equal then.
  static void DropAnnotations(Json& schema) {
    for (const std::string_view name : kAnnotations) {
      if (!In(kDefinitionKeywords, name)) schema.erase(std::string(name));
    }
    schema.erase("uniqueItems");
  }

  Status CheckDefinitions(Json& schema, const std::string& path) {
    for (const char* name : kDefinitionKeywords) {
      const auto found = schema.find(name);
      if (found == schema.end()) continue;
      if (!found->is_object()) return Refuse(At(path, name), "must be an object");
      for (auto& [key, definition] : found->items()) {
        BATON_RETURN_IF_ERROR(CheckSchema(definition, At(At(path, name), key)));
      }
    }
    return OkStatus();
  }

  // A schema with a keyword of kWhole, beside which only annotations may stand, and types where
  // they change nothing.
  Status CheckWhole(Json& schema, std::string_view whole, Json& value, const std::string& path) {
    const std::string at = At(path, whole);
    for (const auto& [name, other] : schema.items()) {
      if (name == whole || In(kAnnotations, name)) continue;
      const bool type = name == "type" && (whole == "enum" || whole == "const");
      if (!type) {
        return Refuse(At(path, name),
                      fmt::format("the keyword {} is not supported beside {}", name, whole));
      }
    }
    if (whole == "$ref") {
      if (!value.is_string()) return Refuse(at, "must be a string");
      references_.AddReference(at, value.get<std::string>());
      return OkStatus();
    }
    if (whole == "const" || whole == "enum") return CheckValues(schema, whole, value, at);
    if (!value.is_array() || value.empty()) return Refuse(at, "must be an array of schemas");
    if (whole == "allOf" && value.size() > 1) {
      return Refuse(at, "allOf is only supported with one schema");
    }
    for (size_t i = 0; i < value.size(); ++i) {
      BATON_RETURN_IF_ERROR(CheckSchema(value[i], fmt::format("{}/{}", at, i)));
    }
    return OkStatus();
  }

  Status CheckValues(const Json& schema,
                     std::string_view whole,
                     const Json& value,
                     const std::string& at) {
    if (whole == "enum" && (!value.is_array() || value.empty())) {
      return Refuse(at, "must be an array of values");
    }
    const auto type = schema.find("type");
    const auto check = [&](const Json& one) -> Status {
      BATON_RETURN_IF_ERROR(Count(at));
      if (type == schema.end() || HasType(one, *type)) return OkStatus();
      return Refuse(at, "a value is not of the type beside it");
    };
    if (whole == "const") return check(value);
    for (const Json& one : value) BATON_RETURN_IF_ERROR(check(one));
    return OkStatus();
  }

  static Status CheckType(const Json& schema, const std::string& path) {
    const auto type = schema.find("type");
    const auto known = [](const Json& one) {
      return one.is_string() && In(kTypes, one.get<std::string>());
    };
    if (type == schema.end()) {
      // Without a type, XGrammar would take any value.
      for (const auto& [name, value] : schema.items()) {
        if (In(kString, name) || In(kNumber, name) || name == "required" ||
            name == "minProperties" || name == "maxProperties" || name == "minItems" ||
            name == "maxItems") {
          return Refuse(At(path, name),
                        fmt::format("the keyword {} is only supported beside a type", name));
        }
      }
      return OkStatus();
    }
    // XGrammar writes a schema out for each of its types.
    const auto once = [&](const Json& one) { return std::ranges::count(*type, one) == 1; };
    const bool several = type->is_array() && !type->empty() && type->size() <= std::size(kTypes) &&
                         std::ranges::all_of(*type, known) && std::ranges::all_of(*type, once);
    if (several || known(*type)) return OkStatus();
    return Refuse(path + "/type",
                  fmt::format("must be one of {}, or an array of different ones of these",
                              fmt::join(kTypes, ", ")));
  }

  Status CheckString(const Json& schema, const std::string& path) {
    const auto pattern = schema.find("pattern");
    const auto format = schema.find("format");
    const bool bounded = schema.contains("minLength") || schema.contains("maxLength");
    if (format != schema.end()) {
      if (!format->is_string()) return Refuse(path + "/format", "must be a string");
      const auto name = format->get<std::string>();
      if (!In(kFormats, name)) {
        return Refuse(path + "/format",
                      fmt::format("the format '{}' is not supported; these are: {}",
                                  Shortened(name, kMaxQuoted),
                                  fmt::join(kFormats, ", ")));
      }
    }
    if (pattern != schema.end()) {
      if (!pattern->is_string()) return Refuse(path + "/pattern", "must be a string");
      const auto text = pattern->get<std::string>();
      const std::string what = ShownPath(path + "/pattern");
      BATON_ASSIGN_OR_RETURN(const int64_t size,
                             CheckedTextSize(GrammarText::kRegex, what, text, limits_));
      pattern_work_ += std::min(size * size, limits_.max_pattern_work + 1);
      if (pattern_work_ > limits_.max_pattern_work) {
        return Refuse(path + "/pattern",
                      "the patterns of the schema have too many repetitions; about a thousand "
                      "characters are supported");
      }
      if (WritesRaw(text)) {
        return Refuse(path + "/pattern",
                      "a quotation mark, a backslash or a control character is only supported in a "
                      "negated class, as in [^\"]");
      }
    }
    if (pattern != schema.end() && format != schema.end()) {
      return Refuse(path + "/pattern", "pattern is not supported beside format");
    }
    if (bounded && (pattern != schema.end() || format != schema.end())) {
      return Refuse(path, "minLength and maxLength are not supported beside pattern or format");
    }
    return OkStatus();
  }

  Status CheckNumber(const Json& schema, const std::string& path) {
    const auto multiple = schema.find("multipleOf");
    if (multiple == schema.end()) return OkStatus();
    const auto type = schema.find("type");
    if (type != schema.end() && *type == "integer" && multiple->is_number_integer()) {
      const auto value = multiple->get<int64_t>();
      multiples_ += value > 0 ? std::min(value, limits_.max_multiples + 1) : 0;
      if (multiples_ <= limits_.max_multiples) return OkStatus();
      return Refuse(path + "/multipleOf",
                    fmt::format("the values of multipleOf in the schema add up to more than {}",
                                limits_.max_multiples));
    }
    return Refuse(path + "/multipleOf",
                  "multipleOf is only supported for the type integer, and must be an integer");
  }

  Status CheckCounts(const Json& schema, const std::string& path) const {
    for (const char* name :
         {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}) {
      const auto found = schema.find(name);
      if (found == schema.end()) continue;
      const bool fits = found->is_number_integer() && *found >= 0 && *found <= limits_.max_repeats;
      if (fits) {
        const bool crossed = name == std::string_view("maxLength") &&
                             schema.value("minLength", int64_t{0}) > found->get<int64_t>();
        if (!crossed) continue;
        return Refuse(path + "/maxLength", "is less than minLength");
      }
      return Refuse(fmt::format("{}/{}", path, name),
                    fmt::format("must be an integer from 0 to {}", limits_.max_repeats));
    }
    return OkStatus();
  }

  // XGrammar allows control characters in a string with bounds of its length, which JSON does not.
  // The pattern is the same without them. It names characters beyond ASCII, because XGrammar writes
  // out the repetitions of any other pattern, in a time that grows with their square.
  static void BoundLength(Json& schema) {
    if (!schema.contains("minLength") && !schema.contains("maxLength")) return;
    const int64_t least = schema.value("minLength", int64_t{0});
    const bool bounded = schema.contains("maxLength");
    const std::string most = bounded ? std::to_string(schema["maxLength"].get<int64_t>()) : "";
    schema.erase("minLength");
    schema.erase("maxLength");
    if (!MayBe(schema, "string")) return;
    schema["pattern"] = fmt::format(
        "^[ !#-\\[\\]-\xED\x9F\xBF\xEE\x80\x80-\xF4\x8F\xBF\xBF]{{{},{}}}$", least, most);
  }

  // XGrammar's own pattern allows leading zeros.
  static void WriteIpv4(Json& schema) {
    if (schema.value("format", Json()) != "ipv4") return;
    schema.erase("format");
    constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    schema["pattern"] = fmt::format("^({}\\.){{3}}{}$", kByte, kByte);
  }

  Status CheckArray(Json& schema, const std::string& path) {
    if (const auto items = schema.find("items"); items != schema.end()) {
      const bool none = items->is_boolean() && !items->get<bool>();
      if (!none) BATON_RETURN_IF_ERROR(CheckSchema(*items, path + "/items"));
    } else if (!schema.contains("prefixItems") && MayBe(schema, "array")) {
      schema["items"] = true;  // XGrammar would allow no items
    }
    const auto prefix = schema.find("prefixItems");
    if (prefix == schema.end()) return OkStatus();
    if (!prefix->is_array()) return Refuse(path + "/prefixItems", "must be an array of schemas");
    for (size_t i = 0; i < prefix->size(); ++i) {
      BATON_RETURN_IF_ERROR(CheckSchema((*prefix)[i], fmt::format("{}/prefixItems/{}", path, i)));
    }
    return OkStatus();
  }

  static bool MayBe(const Json& schema, std::string_view wanted) {
    const auto type = schema.find("type");
    if (type == schema.end()) return false;
    if (!type->is_array()) return *type == wanted;
    return std::ranges::any_of(*type, [&](const Json& one) { return one == wanted; });
  }

  Status CheckObject(Json& schema, const std::string& path) {
    const auto properties = schema.find("properties");
    const bool declares = properties != schema.end();
    if (declares) {
      if (!properties->is_object()) return Refuse(path + "/properties", "must be an object");
      if (schema.contains("minProperties") || schema.contains("maxProperties")) {
        const auto count = static_cast<int64_t>(properties->size());
        counted_properties_work_ += count * count;
        if (counted_properties_work_ > limits_.max_counted_properties_work) {
          return Refuse(path,
                        "minProperties and maxProperties are only supported beside few properties, "
                        "at most 64 in the schema");
        }
      }
      for (auto& [name, value] : properties->items()) {
        BATON_RETURN_IF_ERROR(CheckSchema(value, At(path + "/properties", name)));
      }
    }
    if (const auto required = schema.find("required"); required != schema.end()) {
      if (!required->is_array()) return Refuse(path + "/required", "must be an array of strings");
      std::set<std::string_view> declared;
      if (declares) {
        for (const auto& [name, value] : properties->items()) declared.insert(name);
      }
      std::set<std::string_view> names;
      for (const Json& name : *required) {
        if (!name.is_string()) return Refuse(path + "/required", "must be an array of strings");
        const auto& text = name.get_ref<const std::string&>();
        if (!names.insert(text).second) {
          return Refuse(path + "/required",
                        fmt::format("'{}' occurs twice", Shortened(text, kMaxQuoted)));
        }
        if (declared.contains(text)) continue;
        return Refuse(path + "/required",
                      fmt::format("'{}' is not among the properties", Shortened(text, kMaxQuoted)));
      }
    }
    const auto additional = schema.find("additionalProperties");
    if (additional != schema.end() && !additional->is_boolean()) {
      BATON_RETURN_IF_ERROR(CheckSchema(*additional, path + "/additionalProperties"));
    }
    if (declares && (!properties->empty() || additional == schema.end())) {
      schema["additionalProperties"] = false;
    } else if (additional == schema.end() && MayBe(schema, "object")) {
      schema["additionalProperties"] = true;
    }
    return OkStatus();
  }

  const Json& root_;
  const GrammarLimits& limits_;
  size_t values_ = 0;
  int64_t pattern_work_ = 0;
  int64_t counted_properties_work_ = 0;
  int64_t multiples_ = 0;
  SchemaReferences references_;
};

}  // namespace

StatusOr<Json> CheckedSchema(const Json& schema, const GrammarLimits& limits) {
  return Checker(schema, limits).Check();
}

}  // namespace baton
