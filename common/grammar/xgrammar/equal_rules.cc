#include "common/grammar/xgrammar/equal_rules.h"

#include <grammar_impl.h>

#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace baton {
namespace {

using Expr = xgrammar::Grammar::Impl::GrammarExpr;
using ExprType = xgrammar::Grammar::Impl::GrammarExprType;

bool CallsRule(const Expr& expr) {
  return expr.type == ExprType::kRuleRef || expr.type == ExprType::kRepeat;
}

class RuleSharer {
 public:
  explicit RuleSharer(xgrammar::Grammar& grammar)
      : grammar_(grammar),
        equal_exprs_(static_cast<size_t>(grammar->NumGrammarExprs()), -1),
        rules_of_bodies_(static_cast<size_t>(grammar->NumGrammarExprs()), -1),
        equal_rules_(static_cast<size_t>(grammar->NumRules())) {
    exprs_.reserve(equal_exprs_.size());
    std::iota(equal_rules_.begin(), equal_rules_.end(), 0);
  }

  // From the last rule to the first: XGrammar adds most rules behind those that call them.
  void Share() {
    for (int32_t rule = grammar_->NumRules() - 1; rule >= 0; --rule) {
      const int32_t body = EqualExpr(grammar_->GetRule(rule).body_expr_id);
      int32_t& known = rules_of_bodies_[static_cast<size_t>(body)];
      if (known < 0) known = rule;
      equal_rules_[static_cast<size_t>(rule)] = known;
    }
    for (int32_t id = 0; id < grammar_->NumGrammarExprs(); ++id) {
      if (Expr expr = grammar_->GetGrammarExpr(id); CallsRule(expr)) CallEqualRule(expr);
    }
  }

 private:
  void CallEqualRule(Expr& expr) { expr.SetData(0, equal_rules_[static_cast<size_t>(expr[0])]); }

  // The first expression that was found to be equal to `id`, or `id`. Rules are choices of
  // sequences, so this recursion is not deep.
  int32_t EqualExpr(int32_t id) {
    int32_t& equal = equal_exprs_[static_cast<size_t>(id)];
    if (equal >= 0) return equal;
    Expr expr = grammar_->GetGrammarExpr(id);
    if (expr.type == ExprType::kSequence || expr.type == ExprType::kChoices) {
      for (int32_t i = 0; i < expr.size(); ++i) expr.SetData(i, EqualExpr(expr[i]));
    } else if (CallsRule(expr)) {
      CallEqualRule(expr);
    }
    const std::string_view data(reinterpret_cast<const char*>(expr.data),
                                static_cast<size_t>(expr.size()) * sizeof(int32_t));
    equal = exprs_.try_emplace({expr.type, data}, id).first->second;
    return equal;
  }

  xgrammar::Grammar& grammar_;
  absl::flat_hash_map<std::pair<ExprType, std::string_view>, int32_t> exprs_;  // by their data
  std::vector<int32_t> equal_exprs_;      // by expression: an equal one; -1: not visited
  std::vector<int32_t> rules_of_bodies_;  // by expression: the rule with this body, or -1
  std::vector<int32_t> equal_rules_;      // by rule: the one to call instead
};

}  // namespace

void ShareEqualRules(xgrammar::Grammar& grammar) {
  RuleSharer(grammar).Share();
}

}  // namespace baton
