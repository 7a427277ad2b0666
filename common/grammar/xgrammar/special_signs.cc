#include "common/grammar/xgrammar/special_signs.h"

#include <grammar_builder.h>
#include <grammar_impl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/chat_format/markers.h"
#include "common/grammar/marked_formats.h"
#include "common/text/normalizer.h"

namespace baton {
namespace {

using ExprType = xgrammar::Grammar::Impl::GrammarExprType;

// The expression to use instead of each one: itself, or a text with the byte.
std::vector<int32_t> AddTexts(const xgrammar::Grammar& grammar, xgrammar::GrammarBuilder& builder) {
  std::vector<int32_t> instead;
  const int32_t exprs = grammar->NumGrammarExprs();
  for (int32_t id = 0; id < exprs; ++id) {
    instead.push_back(id);
    if (grammar->GetGrammarExpr(id).type != ExprType::kByteString) continue;
    const std::string text = grammar->GetByteString(id);
    if (text.find(kGrammarSign) == std::string::npos) continue;
    instead.back() = builder.AddByteString(ReplaceAll(text, kGrammarSign, {&kSpecialSign, 1}));
  }
  return instead;
}

}  // namespace

void ReadSigns(xgrammar::Grammar& grammar) {
  auto builder = xgrammar::GrammarBuilder::FromMutableGrammar(&grammar);
  const std::vector<int32_t> instead = AddTexts(grammar, builder);
  for (size_t id = 0; id < instead.size(); ++id) {
    auto expr = grammar->GetGrammarExpr(static_cast<int32_t>(id));
    const auto replace = [&](int32_t at) {
      expr.SetData(at, instead[static_cast<size_t>(expr[at])]);
    };
    if (expr.type == ExprType::kSequence || expr.type == ExprType::kChoices) {
      for (int32_t i = 0; i < expr.size(); ++i) replace(i);
    } else if (expr.type == ExprType::kTagDispatch) {
      // Pairs of a trigger and a rule, a flag, and the choices of what is excluded.
      for (int32_t i = 0; i + 2 < expr.size(); i += 2) replace(i);
    }
  }
}

}  // namespace baton
