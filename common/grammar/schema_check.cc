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

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/shortened.h"
#include "common/chat_format/schema_types.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/marked_formats.h"
#include "common/grammar/one_of_proof.h"
#include "common/grammar/schema_keywords.h"
#include "common/grammar/schema_merge.h"
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

Status CheckTextsUnsigned(const Json& value) {
  if (value.is_string()) {
    return CheckUnsigned("the schema", value.get_ref<const std::string&>());
  }
  if (!value.is_structured()) return OkStatus();
  const bool named = value.is_object();
  for (auto inner = value.begin(); inner != value.end(); ++inner) {
    if (named) BATON_RETURN_IF_ERROR(CheckUnsigned("the schema", inner.key()));
    BATON_RETURN_IF_ERROR(CheckTextsUnsigned(*inner));
  }
  return OkStatus();
}

class Checker {
 public:
  Checker(const Json& root, const GrammarLimits& limits, SchemaUse use)
      : root_(root),
        limits_(limits),
        strings_(limits, use == SchemaUse::kCall),
        types_(root),
        references_(root),
        merger_(root, limits, references_),
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
    BATON_ASSIGN_OR_RETURN(const bool possible, Merge(schema, path, own_base));
    if (!possible) return SchemaError(path, "no value matches all that it states");
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

  // Merges what the values of the schema must match at once; false where no value does.
  StatusOr<bool> Merge(Json& schema, const std::string& path, bool own_base) {
    own_base = own_base || (!path.empty() && StatesBase(schema, base_));
    if (merger_.Needed(schema) && !(own_base && Refers(schema))) {
      BATON_ASSIGN_OR_RETURN(schema, merger_.Merged(schema, path));
    }
    return schema != false;
  }

  Status Count(const std::string& path) {
    if (++values_ <= limits_.max_schema_values) return OkStatus();
    return SchemaError(path,
                       fmt::format("the schema has more than {} schemas and enumerated values",
                                   limits_.max_schema_values));
  }

  static Status CheckKeywords(const Json& schema, const std::string& path) {
    for (const auto& [name, value] : schema.items()) {
      if (IsEnforced(name) || !IsConstraint(schema, name)) continue;
      return SchemaError(MemberPath(path, name),
                         fmt::format("the keyword {} is not supported", name));
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
      if (!found->is_object()) return SchemaError(MemberPath(path, name), "must be an object");
      for (auto& [key, definition] : found->items()) {
        BATON_RETURN_IF_ERROR(
            CheckSchema(definition, MemberPath(MemberPath(path, name), key), own_base));
      }
    }
    return OkStatus();
  }

  // A schema with a keyword of kWholeKeywords, beside which only a type may stand.
  Status CheckWhole(Json& schema,
                    const std::string& whole,
                    const std::string& path,
                    bool own_base) {
    const std::string at = MemberPath(path, whole);
    for (const auto& [name, other] : schema.items()) {
      if (name == whole || name == "type" || IsDefinitions(name)) continue;
      return SchemaError(MemberPath(path, name),
                         fmt::format("the keyword {} is not supported beside {}", name, whole));
    }
    BATON_RETURN_IF_ERROR(CheckTypeNames(schema, path));
    if (whole == "const" || whole == "enum") return CheckValues(schema, whole, at);
    if (whole == "$ref") return CheckReference(schema, path, own_base);
    Json& options = schema[whole];
    if (!options.is_array() || options.empty()) {
      return SchemaError(at, "must be an array of schemas");
    }
    if (whole == "allOf" && options.size() > 1) {
      return SchemaError(at, "allOf is only supported with one schema");
    }
    if (schema.contains("type")) {
      const ValueTypes types = TypesOfName(schema);
      const auto within = [&](const Json& option) { return types_.Of(option).Within(types); };
      if (!std::ranges::all_of(options, within)) return TypeRefused(path);
    }
    BATON_RETURN_IF_ERROR(CheckOptions(options, whole, at, own_base));
    schema.erase("type");
    return OkStatus();
  }

  // Options without a value keep their places until Finish, because references count them.
  Status CheckOptions(Json& options,
                      const std::string& whole,
                      const std::string& at,
                      bool own_base) {
    const auto path_of = [&](size_t i) { return fmt::format("{}/{}", at, i); };
    bool possible = false;
    for (size_t i = 0; i < options.size(); ++i) {
      BATON_ASSIGN_OR_RETURN(const bool one, Merge(options[i], path_of(i), own_base));
      possible = possible || one;
    }
    if (!possible) return SchemaError(at, "no value matches one of its schemas");
    if (whole == "oneOf") {
      const Status separated = SeparateOptions(options, root_);
      if (!separated.ok()) return SchemaError(at, Message(separated));
    }
    for (size_t i = 0; i < options.size(); ++i) {
      if (options[i] == false) continue;
      BATON_RETURN_IF_ERROR(CheckSchema(options[i], path_of(i), own_base));
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

  static Status TypeRefused(const std::string& path) {
    return SchemaError(path + "/type",
                       "the schemas beside it allow other types, which is not supported");
  }

  // Values of other types than the type beside them are left out.
  Status CheckValues(Json& schema, const std::string& whole, const std::string& at) {
    const bool several = whole == "enum";
    if (several && (!schema[whole].is_array() || schema[whole].empty())) {
      return SchemaError(at, "must be an array of values");
    }
    const ValueTypes types = schema.contains("type") ? TypesOfName(schema) : ValueTypes::kAll;
    Json kept = Json::array();
    const Json values = several ? schema[whole] : Json::array({schema[whole]});
    for (const Json& one : values) {
      BATON_RETURN_IF_ERROR(Count(at));
      BATON_RETURN_IF_ERROR(CheckExact(one, at));
      if (TypesOfValue(one).Within(types)) kept.push_back(one);
    }
    if (kept.empty()) return SchemaError(at, "no value is of the type beside it");
    if (several) schema[whole] = std::move(kept);
    schema.erase("type");
    return OkStatus();
  }

  Status CheckNumber(Json& schema, const std::string& path) {
    if (MayBe(schema, "number") || MayBe(schema, "integer")) WholeMultiples(schema);
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
      BATON_RETURN_IF_ERROR(Merge(*items, path + "/items", own_base).status());
      if (!(*items == false)) BATON_RETURN_IF_ERROR(CheckSchema(*items, path + "/items", own_base));
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
    if (declares) BATON_RETURN_IF_ERROR(CheckProperties(schema, path + "/properties", own_base));
    const auto additional = schema.find("additionalProperties");
    if (additional != schema.end()) {
      const std::string at = path + "/additionalProperties";
      BATON_RETURN_IF_ERROR(Merge(*additional, at, own_base).status());
      if (!additional->is_boolean()) BATON_RETURN_IF_ERROR(CheckSchema(*additional, at, own_base));
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

  // Properties without a value are left out. The object has none that are not declared.
  Status CheckProperties(Json& schema, const std::string& at, bool own_base) {
    Json& properties = schema["properties"];
    std::vector<std::string> impossible;
    for (auto& [name, value] : properties.items()) {
      const std::string path = MemberPath(at, name);
      BATON_ASSIGN_OR_RETURN(const bool possible, Merge(value, path, own_base));
      if (possible) {
        BATON_RETURN_IF_ERROR(CheckSchema(value, path, own_base));
        continue;
      }
      const Json required = schema.value("required", Json::array());
      if (std::ranges::find(required, Json(name)) != required.end()) {
        return SchemaError(path, "no value matches this property, which is required");
      }
      impossible.push_back(name);
    }
    for (const std::string& name : impossible) properties.erase(name);
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

  // One pattern for several ones, with a value that matches the schemas of all, because a name may
  // match several patterns.
  Status JoinPatterns(Json& schema, const std::string& at) {
    Json& patterns = schema["patternProperties"];
    const bool declares = schema.contains("properties") && !schema["properties"].empty();
    if (declares || patterns.size() < 2) return OkStatus();
    std::string any;
    Json schemas = Json::array();
    for (const auto& [pattern, value] : patterns.items()) {
      BATON_RETURN_IF_ERROR(strings_.ReadPattern(pattern, MemberPath(at, pattern)).status());
      any += fmt::format("{}(?:{})", any.empty() ? "" : "|", pattern);
      schemas.push_back(value);
    }
    patterns = Json::object();
    patterns[any] = {{"allOf", std::move(schemas)}};
    return OkStatus();
  }

  // One pattern of names is enforced. Beside declared properties the object has no others, so
  // patterns only matter where they match a declared name, whose value then matches both schemas.
  Status CheckPatternProperties(Json& schema, const std::string& path, bool own_base) {
    const auto patterns = schema.find("patternProperties");
    if (patterns == schema.end()) return OkStatus();
    const std::string at = path + "/patternProperties";
    if (!patterns->is_object()) return SchemaError(at, "must be an object");
    BATON_RETURN_IF_ERROR(JoinPatterns(schema, at));
    const bool declares = schema.contains("properties") && !schema["properties"].empty();
    for (auto& [name, value] : patterns->items()) {
      BATON_ASSIGN_OR_RETURN(const RegexNode node,
                             strings_.ReadPattern(name, MemberPath(at, name)));
      if (!declares) {
        BATON_ASSIGN_OR_RETURN(written_names_[name], strings_.InJson(node, MemberPath(at, name)));
        BATON_RETURN_IF_ERROR(CheckSchema(value, MemberPath(at, name), own_base));
        continue;
      }
      for (auto& [property, own] : schema["properties"].items()) {
        matched_ += SizeOf(node) * static_cast<int64_t>(property.size() + 1);
        if (matched_ > limits_.max_pattern_work) {
          return SchemaError(at, "takes too long to compare with the names of properties");
        }
        if (Matches(node, property)) own = {{"allOf", Json::array({own, value})}};
      }
    }
    if (declares || patterns->empty()) schema.erase("patternProperties");
    return OkStatus();
  }

  // What had to keep its place until references were resolved.
  void Finish(Json& schema) {
    VisitInner(schema, [&](Json& inner) { Finish(inner); });
    if (!schema.is_object()) return;
    DivideTypes(schema);
    for (const char* name : {"anyOf", "oneOf"}) {
      if (schema.contains(name)) std::erase(schema[name].get_ref<Json::array_t&>(), Json(false));
    }
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
  SchemaMerger merger_;
  const char* const base_;  // the keyword that states the address of a schema
  size_t values_ = 0;
  int64_t counted_properties_work_ = 0;
  int64_t multiples_ = 0;
  int64_t matched_ = 0;
  std::map<std::string, std::string> written_names_;  // patterns of names, as XGrammar reads them
};

}  // namespace

StatusOr<Json> CheckedSchema(const Json& schema, const GrammarLimits& limits, SchemaUse use) {
  BATON_RETURN_IF_ERROR(CheckTextsUnsigned(schema));
  return Checker(schema, limits, use).Check();
}

}  // namespace baton
