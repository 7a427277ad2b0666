#include "common/grammar/nested_calls.h"

#include <string>

#include <nlohmann/json.hpp>

#include "common/chat_format/call_syntax.h"
#include "common/grammar/braced_values.h"
#include "common/grammar/ebnf_rules.h"
#include "common/grammar/element_values.h"

namespace baton {

bool IsNested(ToolCallFormat format) {
  return format == ToolCallFormat::kGemma || format == ToolCallFormat::kMiniMaxM3;
}

StatusOr<GrammarPart> NestedArguments(ToolCallFormat format, const CallableTool& tool) {
  EbnfRules rules;
  std::string root;
  if (format == ToolCallFormat::kGemma) {
    BracedValues values(BracedValues::Syntax::kGemma, PlainSyntaxOf(format).All(), tool, rules);
    BATON_ASSIGN_OR_RETURN(root, values.Arguments({}));
  } else {
    ElementValues values(tool, rules);
    BATON_ASSIGN_OR_RETURN(root, values.Arguments(values.Stated()));
  }
  return nlohmann::ordered_json{{"type", "grammar"}, {"grammar", rules.Grammar(root)}};
}

}  // namespace baton
