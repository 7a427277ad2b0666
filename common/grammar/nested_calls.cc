#include "common/grammar/nested_calls.h"

#include <string>

#include <nlohmann/json.hpp>

#include "common/grammar/braced_values.h"
#include "common/grammar/ebnf_rules.h"
#include "common/grammar/element_values.h"

namespace baton {

bool IsNested(ToolCallFormat format) {
  return format == ToolCallFormat::kGemma || format == ToolCallFormat::kMiniMaxM3;
}

StatusOr<GrammarPart> NestedArguments(const MarkedFormats& formats, const CallableTool& tool) {
  EbnfRules rules;
  std::string root;
  if (formats.calls == ToolCallFormat::kGemma) {
    BracedValues values(BracedValues::Syntax::kGemma, formats, tool, rules);
    BATON_ASSIGN_OR_RETURN(root, values.Arguments({}));
  } else {
    ElementValues values(formats, tool, rules);
    BATON_ASSIGN_OR_RETURN(root, values.Arguments(values.Stated()));
  }
  return nlohmann::ordered_json{{"type", "grammar"}, {"grammar", rules.Grammar(root)}};
}

}  // namespace baton
