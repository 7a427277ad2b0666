#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

// What an output must match, as text that travels with its request: a structural tag of XGrammar, a
// JSON object that combines schemas, expressions, grammars and free text
// (https://xgrammar.mlc.ai/docs). The functions below and in call_grammar.h make such texts of what
// clients state. They refuse, by name, what is too large or too deep, and what XGrammar accepts
// without enforcing it. Errors: InvalidArgument.
namespace baton {

// The bounds of what clients state, before anything of it is parsed by recursion or expanded.
struct GrammarLimits {
  size_t max_schema_bytes = size_t{256} << 10;
  size_t max_schema_values = 20'000;         // JSON values, the entries of enumerations included
  size_t max_text_bytes = size_t{64} << 10;  // of a regular expression, a grammar or all choices
  size_t max_choices = 4096;
  int max_nesting = 40;          // of groups, arrays and objects
  int64_t max_repeats = 65'536;  // the product of nested counts, as in (a{100}){100}
  // What XGrammar writes out: of the patterns of a schema, the sum of the squares of their
  // elements, as a{1,9}b has 10; of objects with minProperties or maxProperties, the sum of the
  // squares of their properties; and the sum of all values of multipleOf.
  int64_t max_pattern_work = 1'000'000;
  int64_t max_counted_properties_work = 4096;  // of 64 properties
  int64_t max_multiples = 10'000;
};

// A part of an output; Spec makes the text of a whole one.
using GrammarPart = nlohmann::ordered_json;

// A JSON object with any members.
GrammarPart JsonObjectPart();
// A value of the schema. Objects that declare properties have no others, also where the schema
// would allow them.
StatusOr<GrammarPart> JsonSchemaPart(const nlohmann::ordered_json& schema,
                                     const GrammarLimits& limits = {});
// A regular expression, which the whole output matches.
StatusOr<GrammarPart> RegexPart(std::string_view pattern, const GrammarLimits& limits = {});
// One of the texts.
StatusOr<GrammarPart> ChoicePart(std::span<const std::string> choices,
                                 const GrammarLimits& limits = {});
// An EBNF grammar in the notation of GBNF, whose root rule is `root`.
StatusOr<GrammarPart> EbnfPart(std::string_view grammar, const GrammarLimits& limits = {});

// A value of `schema`, which was checked (CheckedSchema). `excluded`: what its strings may not
// contain, but for those with a pattern.
GrammarPart JsonSchemaOf(nlohmann::ordered_json schema,
                         std::span<const std::string_view> excluded = {});

// The text of the whole output `part`.
std::string GrammarSpec(GrammarPart part);

}  // namespace baton
