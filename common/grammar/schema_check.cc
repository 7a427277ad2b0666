#include "common/grammar/schema_check.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <map>
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
#include "common/chat_format/schema_types.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/one_of_proof.h"
#include "common/grammar/schema_keywords.h"
#include "common/grammar/schema_places.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/schema_strings.h"
#include "common/grammar/schema_type.h"
#include "common/grammar/schema_values.h"
#include "common/grammar/shared_schemas.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of a path. A path is built for each schema.
constexpr size_t kMaxPath = 4096;

// The types of the values that `schema` allows by `type` alone.
ValueTypes TypesOfName(const Json& schema) {
  const Json type = {{"type", schema["type"]}};
  return SchemaTypes(type).Of(type);
}

class Checker {
 public:
  Checker(const Json& root, const GrammarLimits& limits, SchemaUse use)
      : root_(root),
        limits_(limits),
        strings_(limits, use == SchemaUse::kCall),
        types_(root),
        references_(root),
        base_(BaseKeyword(root)) {}

  StatusOr<Json> Check() {
    Json out = root_;
    BATON_RETURN_IF_ERROR(CheckSchema(out, "", /*own_base=*/false));
    BATON_RETURN_IF_ERROR(references_.Resolve(out));
    Finish(out);
    ShareEqualSchemas(out);
    return out;
  }

 private:
  // All checks of one schema; `path` is a JSON pointer. `own_base`: a schema around it, or it
  // itself, states another address than the whole schema has.
  Status CheckSchema(Json& schema, const std::string& path, bool own_base) {
    BATON_RETURN_IF_ERROR(Count(path));
    if (path.size() > kMaxPath) return SchemaError(path, "its path is longer than 4096 bytes");
    references_.AddPlace(path);
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return OkStatus();
      return SchemaError(path, "the schema `false` allows no value");
    }
    if (!schema.is_object()) return SchemaError(path, "a schema must be an object or true");
    own_base = own_base || (!path.empty() && StatesBase(schema, base_));
    BATON_RETURN_IF_ERROR(CheckKeywords(schema, path));
    DropAnnotations(schema);
    BATON_RETURN_IF_ERROR(CheckDefinitions(schema, path, own_base));
    for (const std::string_view whole : kWholeKeywords) {
      if (schema.contains(whole)) return CheckWhole(schema, std::string(whole), path, own_base);
    }
    BATON_RETURN_IF_ERROR(ImplyType(schema, path));
    BATON_RETURN_IF_ERROR(CheckTypeNames(schema, path));
    BATON_RETURN_IF_ERROR(CheckNumber(schema, path));
    BATON_RETURN_IF_ERROR(CheckCounts(schema, path));
    if (MayBe(schema, "string")) BATON_RETURN_IF_ERROR(strings_.Rewrite(schema, path));
    BATON_RETURN_IF_ERROR(CheckArray(schema, path, own_base));
    return CheckObject(schema, path, own_base);
  }

  Status Count(const std::string& path) {
    if (++values_ <= limits_.max_schema_values) return OkStatus();
    return SchemaError(path,
                       fmt::format("the schema has more than {} schemas and enumerated values",
                                   limits_.max_schema_values));
  }

  // The path of a member of the value at `path` (RFC 6901).
  static std::string At(const std::string& path, std::string_view name) {
    return absl::StrCat(
        path, "/", absl::StrReplaceAll({name.data(), name.size()}, {{"~", "~0"}, {"/", "~1"}}));
  }

  static Status CheckKeywords(const Json& schema, const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      if (IsEnforced(name) || !IsConstraint(name, value)) continue;
      return SchemaError(At(path, name), fmt::format("the keyword {} is not supported", name));
    }
    return OkStatus();
  }

  // What constrains nothing is not passed on. Two schemas that differ in it are equal then.
  static void DropAnnotations(Json& schema) {
    std::vector<std::string> names;
    for (const auto& [name, value] : schema.items()) {
      if (!IsEnforced(name)) names.push_back(name);
    }
    for (const std::string& name : names) schema.erase(name);
  }

  Status CheckDefinitions(Json& schema, const std::string& path, bool own_base) {
    for (const char* name : kDefinitionKeywords) {
      const auto found = schema.find(name);
      if (found == schema.end()) continue;
      if (!found->is_object()) return SchemaError(At(path, name), "must be an object");
      for (auto& [key, definition] : found->items()) {
        BATON_RETURN_IF_ERROR(CheckSchema(definition, At(At(path, name), key), own_base));
      }
    }
    return OkStatus();
  }

  // A schema with a keyword of kWholeKeywords, beside which only a type may stand.
  Status CheckWhole(Json& schema,
                    const std::string& whole,
                    const std::string& path,
                    bool own_base) {
    const std::string at = At(path, whole);
    for (const auto& [name, other] : schema.items()) {
      if (name == whole || name == "type" || IsDefinitions(name)) continue;
      return SchemaError(At(path, name),
                         fmt::format("the keyword {} is not supported beside {}", name, whole));
    }
    BATON_RETURN_IF_ERROR(CheckTypeNames(schema, path));
    const Json& value = schema[whole];
    if (whole == "const" || whole == "enum") {
      BATON_RETURN_IF_ERROR(CheckValues(schema, whole, value, at));
      schema.erase("type");
      return OkStatus();
    }
    if (whole == "$ref") return CheckReference(schema, path, own_base);
    if (!value.is_array() || value.empty()) return SchemaError(at, "must be an array of schemas");
    if (whole == "allOf" && value.size() > 1) {
      return SchemaError(at, "allOf is only supported with one schema");
    }
    if (whole == "oneOf") {
      const Status proved = ProveOneOf(value, root_);
      if (!proved.ok()) return SchemaError(at, Message(proved));
    }
    BATON_RETURN_IF_ERROR(MoveType(schema, whole, path));
    for (size_t i = 0; i < schema[whole].size(); ++i) {
      BATON_RETURN_IF_ERROR(CheckSchema(schema[whole][i], fmt::format("{}/{}", at, i), own_base));
    }
    return OkStatus();
  }

  Status CheckReference(Json& schema, const std::string& path, bool own_base) {
    const std::string at = path + "/$ref";
    if (!schema["$ref"].is_string()) return SchemaError(at, "must be a string");
    if (own_base) {
      return SchemaError(
          at, fmt::format("a reference inside of a schema with {} is not supported", base_));
    }
    const auto target = schema["$ref"].get<std::string>();
    if (schema.contains("type") && !types_.Of(Json{{"$ref", target}}).Within(TypesOfName(schema))) {
      return TypeRefused(path);
    }
    schema.erase("type");
    references_.AddReference(at, target);
    return OkStatus();
  }

  // XGrammar does not look at a type beside other schemas. It is moved into those that allow other
  // types.
  Status MoveType(Json& schema, const std::string& whole, const std::string& path) {
    if (!schema.contains("type")) return OkStatus();
    const Json type = schema["type"];
    const ValueTypes types = TypesOfName(schema);
    for (Json& branch : schema[whole]) {
      if (types_.Of(branch).Within(types)) continue;
      if (branch == true) branch = Json::object();
      const auto whole_too = [&](std::string_view name) { return branch.contains(name); };
      if (!branch.is_object() || branch.contains("type") ||
          std::ranges::any_of(kWholeKeywords, whole_too)) {
        return TypeRefused(path);
      }
      branch["type"] = type;
    }
    schema.erase("type");
    return OkStatus();
  }

  static Status TypeRefused(const std::string& path) {
    return SchemaError(path + "/type",
                       "the schemas beside it allow other types, which is not supported");
  }

  Status CheckValues(const Json& schema,
                     std::string_view whole,
                     const Json& value,
                     const std::string& at) {
    if (whole == "enum" && (!value.is_array() || value.empty())) {
      return SchemaError(at, "must be an array of values");
    }
    const bool typed = schema.contains("type");
    const ValueTypes types = typed ? TypesOfName(schema) : ValueTypes::kAll;
    const auto check = [&](const Json& one) -> Status {
      BATON_RETURN_IF_ERROR(Count(at));
      BATON_RETURN_IF_ERROR(CheckExact(one, at));
      if (TypesOfValue(one).Within(types)) return OkStatus();
      return SchemaError(at, "a value is not of the type beside it");
    };
    if (whole == "const") return check(value);
    for (const Json& one : value) BATON_RETURN_IF_ERROR(check(one));
    return OkStatus();
  }

  Status CheckNumber(Json& schema, const std::string& path) {
    if (MayBe(schema, "integer") || MayBe(schema, "number")) {
      BATON_RETURN_IF_ERROR(BoundNumber(schema, !MayBe(schema, "number"), path));
    }
    const auto multiple = schema.find("multipleOf");
    if (multiple == schema.end()) return OkStatus();
    if (schema["type"] == "integer" && multiple->is_number_integer()) {
      if (!IsRangeOf(schema, limits_.max_multiples)) {
        return SchemaError(path + "/multipleOf",
                           fmt::format("beside bounds, multipleOf is only supported where they "
                                       "are at most {} apart",
                                       limits_.max_multiples));
      }
      const auto value = multiple->get<int64_t>();
      multiples_ += value > 0 ? std::min(value, limits_.max_multiples + 1) : 0;
      if (multiples_ <= limits_.max_multiples) return OkStatus();
      return SchemaError(path + "/multipleOf",
                         fmt::format("the values of multipleOf in the schema add up to more than "
                                     "{}",
                                     limits_.max_multiples));
    }
    return SchemaError(path + "/multipleOf",
                       "multipleOf is only supported for the type integer, and must be an "
                       "integer");
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
        return SchemaError(path + "/maxLength", "is less than minLength");
      }
      return SchemaError(fmt::format("{}/{}", path, name),
                         fmt::format("must be an integer from 0 to {}", limits_.max_repeats));
    }
    return OkStatus();
  }

  Status CheckArray(Json& schema, const std::string& path, bool own_base) {
    if (const auto items = schema.find("items"); items != schema.end()) {
      const bool none = items->is_boolean() && !items->get<bool>();
      if (!none) BATON_RETURN_IF_ERROR(CheckSchema(*items, path + "/items", own_base));
    } else if (!schema.contains("prefixItems") && MayBe(schema, "array")) {
      schema["items"] = true;  // XGrammar would allow no items
    }
    const auto prefix = schema.find("prefixItems");
    if (prefix == schema.end()) return OkStatus();
    if (!prefix->is_array()) {
      return SchemaError(path + "/prefixItems", "must be an array of schemas");
    }
    for (size_t i = 0; i < prefix->size(); ++i) {
      BATON_RETURN_IF_ERROR(
          CheckSchema((*prefix)[i], fmt::format("{}/prefixItems/{}", path, i), own_base));
    }
    return OkStatus();
  }

  Status CheckObject(Json& schema, const std::string& path, bool own_base) {
    BATON_RETURN_IF_ERROR(CheckRequired(schema, path));
    const auto properties = schema.find("properties");
    const bool declares = properties != schema.end() && !properties->empty();
    BATON_RETURN_IF_ERROR(CheckPatternProperties(schema, path, own_base));
    BATON_RETURN_IF_ERROR(CheckPropertyCounts(schema, path));
    if (declares) {
      for (auto& [name, value] : schema["properties"].items()) {
        BATON_RETURN_IF_ERROR(CheckSchema(value, At(path + "/properties", name), own_base));
      }
    }
    const auto additional = schema.find("additionalProperties");
    if (additional != schema.end() && !additional->is_boolean()) {
      BATON_RETURN_IF_ERROR(CheckSchema(*additional, path + "/additionalProperties", own_base));
    }
    const bool closed = schema.contains("patternProperties") ||
                        (schema.contains("properties") && (declares || additional == schema.end()));
    if (closed) {
      schema["additionalProperties"] = false;
    } else if (additional == schema.end() && MayBe(schema, "object")) {
      schema["additionalProperties"] = true;
    }
    return OkStatus();
  }

  // A required property that is not declared becomes a declared one.
  Status CheckRequired(Json& schema, const std::string& path) {
    const auto declared = schema.find("properties");
    if (declared != schema.end() && !declared->is_object()) {
      return SchemaError(path + "/properties", "must be an object");
    }
    const auto required = schema.find("required");
    if (required == schema.end()) return OkStatus();
    const std::string at = path + "/required";
    if (!required->is_array()) return SchemaError(at, "must be an array of strings");
    std::set<std::string> known;
    if (declared != schema.end()) {
      for (const auto& [name, value] : declared->items()) known.insert(name);
    }
    std::set<std::string> names;
    Json added = Json::object();
    const Json others = schema.value("additionalProperties", Json(true));
    const bool open = others == true && !schema.contains("patternProperties");
    for (const Json& name : *required) {
      if (!name.is_string()) return SchemaError(at, "must be an array of strings");
      const auto& text = name.get_ref<const std::string&>();
      if (!names.insert(text).second) {
        return SchemaError(at, fmt::format("'{}' occurs twice", Shortened(text, kMaxQuotedMember)));
      }
      if (known.contains(text)) continue;
      if (!open) {
        return SchemaError(
            at, fmt::format("'{}' is not among the properties", Shortened(text, kMaxQuotedMember)));
      }
      added[text] = true;
    }
    for (const auto& [name, value] : added.items()) schema["properties"][name] = value;
    return OkStatus();
  }

  Status CheckPropertyCounts(const Json& schema, const std::string& path) {
    const bool counted = schema.contains("minProperties") || schema.contains("maxProperties");
    if (!counted) return OkStatus();
    const int64_t count =
        schema.contains("properties") ? static_cast<int64_t>(schema["properties"].size()) : 0;
    counted_properties_work_ += count * count;
    if (counted_properties_work_ > limits_.max_counted_properties_work) {
      return SchemaError(path,
                         "minProperties and maxProperties are only supported beside few "
                         "properties, at most 64 in the schema");
    }
    if (count == 0 && schema.value("minProperties", int64_t{0}) > 1) {
      return SchemaError(path + "/minProperties",
                         "more than 1 is only supported beside properties: of others, two with "
                         "one name would count twice");
    }
    return OkStatus();
  }

  // One pattern of names is enforced. Beside declared properties the object has no others, so
  // patterns only matter where they match a declared name.
  Status CheckPatternProperties(Json& schema, const std::string& path, bool own_base) {
    const auto patterns = schema.find("patternProperties");
    if (patterns == schema.end()) return OkStatus();
    const std::string at = path + "/patternProperties";
    if (!patterns->is_object()) return SchemaError(at, "must be an object");
    const bool declares = schema.contains("properties") && !schema["properties"].empty();
    for (auto& [name, value] : patterns->items()) {
      BATON_ASSIGN_OR_RETURN(const RegexNode node, strings_.ReadPattern(name, At(at, name)));
      if (!declares) {
        BATON_ASSIGN_OR_RETURN(written_names_[name], strings_.InJson(node, At(at, name)));
        BATON_RETURN_IF_ERROR(CheckSchema(value, At(at, name), own_base));
        continue;
      }
      for (const auto& [property, ignored] : schema["properties"].items()) {
        matched_ += SizeOf(node) * static_cast<int64_t>(property.size() + 1);
        if (matched_ > limits_.max_pattern_work) {
          return SchemaError(at, "takes too long to compare with the names of properties");
        }
        if (!Matches(node, property)) continue;
        return SchemaError(
            At(at, name),
            fmt::format("matches the property '{}', which has a schema of its own; this is not "
                        "supported",
                        Shortened(property, kMaxQuotedMember)));
      }
    }
    if (!declares && patterns->size() > 1) {
      return SchemaError(at, "more than one pattern is not supported");
    }
    if (declares || patterns->empty()) schema.erase("patternProperties");
    return OkStatus();
  }

  // What had to keep its place until references were resolved.
  void Finish(Json& schema) {
    VisitInner(schema, [&](Json& inner) { Finish(inner); });
    if (!schema.is_object()) return;
    DivideTypes(schema);
    // A oneOf was proved to mean anyOf.
    if (const auto found = schema.find("oneOf"); found != schema.end()) {
      schema["anyOf"] = std::move(*found);
      schema.erase("oneOf");
    }
    if (const auto found = schema.find("patternProperties"); found != schema.end()) {
      Json written = Json::object();
      for (auto& [name, value] : found->items()) written[written_names_[name]] = std::move(value);
      *found = std::move(written);
    }
  }

  const Json& root_;
  const GrammarLimits& limits_;
  SchemaStrings strings_;
  SchemaTypes types_;
  SchemaReferences references_;
  const char* const base_;  // the keyword that states the address of a schema
  size_t values_ = 0;
  int64_t counted_properties_work_ = 0;
  int64_t multiples_ = 0;
  int64_t matched_ = 0;
  std::map<std::string, std::string> written_names_;  // patterns of names, as XGrammar reads them
};

}  // namespace

StatusOr<Json> CheckedSchema(const Json& schema, const GrammarLimits& limits, SchemaUse use) {
  return Checker(schema, limits, use).Check();
}

}  // namespace baton
