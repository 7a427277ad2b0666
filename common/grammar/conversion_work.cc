#include "common/grammar/conversion_work.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/grammar/schema_places.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxExpressions = 250'000;
constexpr int64_t kMaxCopiedBytes = 40'000'000;
constexpr int64_t kMaxComparedPairs = 20'000'000;
constexpr int64_t kMaxLevels = 2'000;

// The expressions that XGrammar 0.2.8 makes, rounded up. A test compares them with real ones.
constexpr int64_t kPerSpec = 450;  // of the rules that any JSON needs, in the format of a model
constexpr int64_t kPerPart = 24;   // of a structural tag
constexpr int64_t kPerExcludedByte = 60;  // of a text that strings may not contain
constexpr int64_t kPerSchema = 12;
constexpr int64_t kPerChoice = 6;
constexpr int64_t kPerObject = 120;
constexpr int64_t kPerProperty = 64;
constexpr int64_t kPerCountedPair = 14;  // of properties beside minProperties or maxProperties
constexpr int64_t kPerArray = 96;
constexpr int64_t kPerPrefixItem = 32;
constexpr int64_t kPerFormat = 320;
constexpr int64_t kPerTextByte = 3;  // of regular expressions and EBNF
constexpr int64_t kPerRemainder = 36;
constexpr int64_t kMaxMultiplesRange = 10'000;
// Of a node of a JSON value, beside its bytes.
constexpr int64_t kNodeBytes = 8;

int64_t SizeOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? 0 : static_cast<int64_t>(found->size());
}

int64_t TextSizeOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return 0;
  return static_cast<int64_t>(found->get_ref<const std::string&>().size());
}

bool Has(const Json& object, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return object.contains(name); });
}

// Whether XGrammar takes `schema` for one of values of `type`: because it says so, or because it
// has one of the `keywords` and no type.
bool MayBe(const Json& schema, std::string_view type, std::initializer_list<const char*> keywords) {
  const auto found = schema.find("type");
  if (found == schema.end()) return Has(schema, keywords);
  if (!found->is_array()) return *found == type;
  return std::ranges::any_of(*found, [&](const Json& one) { return one == type; });
}

// The digits before the point of the largest of the bounds.
int64_t DigitsOf(const Json& schema) {
  double largest = 1;
  for (const char* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const auto found = schema.find(name);
    if (found == schema.end() || !found->is_number()) continue;
    largest = std::max(largest, std::abs(found->get<double>()) + 1);
  }
  return std::min<int64_t>(static_cast<int64_t>(std::log10(largest)) + 1, 19);  // of 64 bits
}

// The values of const and enum that stand in `schema`, with those inside of them.
int64_t ValuesIn(const Json& value) {
  int64_t values = 1;
  if (!value.is_structured()) return values;
  for (const Json& inner : value) values += ValuesIn(inner);
  return values;
}

int64_t ComparedValues(const Json& schema) {
  int64_t values = 0;
  if (!schema.is_object()) return values;
  for (const char* name : {"const", "enum"}) {
    if (const auto found = schema.find(name); found != schema.end()) values += ValuesIn(*found);
  }
  return values;
}

struct Nesting {
  int64_t levels = 1;
  bool refers = false;
};

// Of the schemas in `schema`, definitions included.
Nesting NestingOf(const Json& schema) {
  Nesting nesting;
  nesting.refers = schema.is_object() && schema.contains("$ref");
  VisitInner(schema, [&](const Json& inner) {
    const auto [levels, refers] = NestingOf(inner);
    nesting.levels = std::max(nesting.levels, levels + 1);
    nesting.refers = nesting.refers || refers;
  });
  return nesting;
}

// A recursion enters each definition once. So it is at most as deep as all definitions that refer
// to others together, and the schema at its begin, after a reference to the whole, and at its end.
int64_t LevelsOf(const Json& schema) {
  int64_t levels = 3 * NestingOf(schema).levels;
  if (!schema.is_object()) return levels;
  for (const char* keyword : kDefinitionKeywords) {
    const auto definitions = schema.find(keyword);
    if (definitions == schema.end()) continue;
    for (const Json& definition : *definitions) {
      const Nesting nesting = NestingOf(definition);
      if (nesting.refers) levels += nesting.levels;
    }
  }
  return levels;
}

class Counter {
 public:
  // Of a part of a structural tag.
  void AddPart(const Json& part) {
    if (part.is_object()) {
      work_.expressions += kPerPart;
      for (const char* name : {"pattern", "grammar"}) {
        work_.expressions += kPerTextByte * TextSizeOf(part, name);
      }
      if (const auto schema = part.find("json_schema"); schema != part.end()) {
        work_.expressions += kPerSpec;
        if (const auto excluded = part.find("excludes"); excluded != part.end()) {
          work_.expressions += kPerExcludedByte * static_cast<int64_t>(excluded->dump().size());
        }
        AddSchema(*schema);
        work_.levels = std::max(work_.levels, LevelsOf(*schema));
        return;
      }
    }
    if (part.is_structured()) {
      for (const Json& inner : part) AddPart(inner);
    }
  }

  const ConversionWork& work() const { return work_; }

 private:
  struct Text {
    int64_t bytes = 0;
    int64_t copied = 0;  // bytes, once for each value around them
  };

  static Text OfValue(const Json& value) {
    Text text{kNodeBytes, 0};
    if (value.is_string()) {
      text.bytes += static_cast<int64_t>(value.get_ref<const std::string&>().size());
    } else if (!value.is_structured()) {
      text.bytes += 8;  // of most numbers
    }
    if (value.is_object()) {
      for (const auto& [name, inner] : value.items()) {
        Append(text, OfValue(inner));
        text.bytes += static_cast<int64_t>(name.size());
      }
    } else if (value.is_array()) {
      for (const Json& inner : value) Append(text, OfValue(inner));
    }
    text.copied += text.bytes;
    return text;
  }

  static void Append(Text& text, const Text& inner) {
    text.bytes += inner.bytes;
    text.copied += inner.copied;
  }

  // XGrammar makes a text of each schema, as a key, and of each again for each of its types.
  void AddSchema(const Json& schema) {
    if (work_.copied_bytes > kMaxCopiedBytes) return;
    const auto type = schema.is_object() ? schema.find("type") : schema.end();
    const bool several = schema.is_object() && type != schema.end() && type->is_array();
    const int64_t keys = several ? 1 + static_cast<int64_t>(type->size()) : 1;
    work_.copied_bytes += keys * OfValue(schema).copied;
    work_.expressions += keys * kPerSchema;
    if (!schema.is_object()) return;
    AddChoices(schema);
    AddObject(schema);
    AddArray(schema);
    work_.expressions += kPerTextByte * TextSizeOf(schema, "pattern");
    if (schema.contains("format")) work_.expressions += kPerFormat;
    AddNumber(schema);
    VisitInner(schema, [&](const Json& inner) { AddSchema(inner); });
  }

  void AddChoices(const Json& schema) {
    for (const char* name : {"enum", "anyOf", "oneOf", "allOf"}) {
      work_.expressions += kPerChoice * SizeOf(schema, name);
    }
    const auto options = schema.find("oneOf");
    if (options == schema.end() || !options->is_array()) return;
    int64_t values = 0;
    for (const Json& option : *options) {
      values += 1 + ComparedValues(option);
      if (!option.is_object()) continue;
      values += SizeOf(option, "required");
      const auto properties = option.find("properties");
      if (properties == option.end() || !properties->is_object()) continue;
      for (const Json& property : *properties) values += ComparedValues(property);
    }
    work_.compared_pairs += values * values;
  }

  void AddObject(const Json& schema) {
    if (const auto patterns = schema.find("patternProperties"); patterns != schema.end()) {
      for (const auto& [name, inner] : patterns->items()) {
        work_.expressions += kPerProperty + kPerTextByte * static_cast<int64_t>(name.size());
      }
    }
    if (!MayBe(schema, "object", {"properties", "additionalProperties"})) return;
    const int64_t properties = SizeOf(schema, "properties");
    work_.expressions += kPerObject + kPerProperty * properties;
    if (!Has(schema, {"minProperties", "maxProperties"})) return;
    work_.expressions += kPerCountedPair * (properties + 1) * (properties + 1);
  }

  void AddArray(const Json& schema) {
    if (!MayBe(schema, "array", {"items", "prefixItems"})) return;
    work_.expressions += kPerArray + kPerPrefixItem * SizeOf(schema, "prefixItems");
  }

  // Bounds are written as expressions about their digits.
  void AddNumber(const Json& schema) {
    const bool bounded =
        Has(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
    const int64_t digits = DigitsOf(schema) + 6;  // behind the point of numbers
    if (bounded) work_.expressions += 64 + 5 * digits * digits;
    const auto multiple = schema.find("multipleOf");
    if (multiple == schema.end() || !multiple->is_number_integer()) return;
    const int64_t remainders = std::clamp<int64_t>(multiple->get<int64_t>(), 1, kMaxMultiplesRange);
    work_.expressions += kPerRemainder * (remainders + 2) + (bounded ? 2 * kMaxMultiplesRange : 0);
  }

  ConversionWork work_;
};

}  // namespace

ConversionWork ConversionWorkOf(const Json& spec) {
  Counter counter;
  counter.AddPart(spec);
  return counter.work();
}

Status CheckConversionWork(const Json& spec) {
  const ConversionWork work = ConversionWorkOf(spec);
  if (work.expressions > kMaxExpressions) {
    return InvalidArgument(
        "the grammar is too large: it would have about {} expressions; at most {} are supported",
        work.expressions,
        kMaxExpressions);
  }
  if (work.copied_bytes > kMaxCopiedBytes) {
    return InvalidArgument(
        "the grammar is too large: its schemas have {} bytes, those of inner schemas counted for "
        "each value around them; at most {} are supported",
        work.copied_bytes,
        kMaxCopiedBytes);
  }
  if (work.compared_pairs > kMaxComparedPairs) {
    return InvalidArgument(
        "the grammar is too large: the options of oneOf have {} pairs of values to compare; at "
        "most {} are supported",
        work.compared_pairs,
        kMaxComparedPairs);
  }
  if (work.levels > kMaxLevels) {
    return InvalidArgument(
        "the grammar is too large: references nest its schemas in up to {} levels; at most {} are "
        "supported",
        work.levels,
        kMaxLevels);
  }
  return OkStatus();
}

}  // namespace baton
