#pragma once

#include "common/base/status.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/token_stream.h"

namespace baton::jinja {

// Parses expressions by recursive descent (Jinja 3.1's grammar and precedences). Depth is bounded.
class ExpressionParser final {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  // One expression, without commas outside of brackets.
  StatusOr<ExpressionPtr> Expr();
  // One expression that does not take a following `if` (a loop's sequence).
  StatusOr<ExpressionPtr> ExprWithoutCondition();
  // Expressions with commas between make a tuple.
  StatusOr<ExpressionPtr> TupleOrExpr(bool with_condition = true);
  // A call's arguments, at the token after '('; takes the ')'.
  StatusOr<CallArguments> Arguments();
  // `name | filter …` after the first '|' of a filter or set block, applied to the block's text.
  StatusOr<ExpressionPtr> FilterChain();

 private:
  using Rule = StatusOr<ExpressionPtr> (ExpressionParser::*)();

  StatusOr<ExpressionPtr> Condition();
  StatusOr<ExpressionPtr> Or();
  StatusOr<ExpressionPtr> And();
  StatusOr<ExpressionPtr> Not();
  StatusOr<ExpressionPtr> Compare();
  StatusOr<ExpressionPtr> Sum();
  StatusOr<ExpressionPtr> Concatenation();
  StatusOr<ExpressionPtr> Product();
  StatusOr<ExpressionPtr> Power();
  StatusOr<ExpressionPtr> UnaryWithFilters();
  StatusOr<ExpressionPtr> Unary(bool with_filters);
  StatusOr<ExpressionPtr> Primary();
  StatusOr<ExpressionPtr> Name();
  StatusOr<ExpressionPtr> Parenthesised();
  StatusOr<ExpressionPtr> ListLiteral();
  StatusOr<ExpressionPtr> DictLiteral();
  StatusOr<ExpressionPtr> Postfix(ExpressionPtr node);
  StatusOr<ExpressionPtr> FiltersAndTests(ExpressionPtr node);
  StatusOr<ExpressionPtr> Filter(ExpressionPtr node);
  StatusOr<ExpressionPtr> Test(ExpressionPtr node);
  StatusOr<ExpressionPtr> Subscript(ExpressionPtr node);
  StatusOr<ExpressionPtr> Call(ExpressionPtr node);

  StatusOr<ExpressionPtr> LeftAssociative(Rule part,
                                          std::initializer_list<std::string_view> operators);
  ExpressionPtr New(Expression::Kind kind, std::string name = "") const;
  // `node` with its depth worked out, or an error when it is too deep.
  StatusOr<ExpressionPtr> Finish(ExpressionPtr node) const;

  TokenStream& in_;
  int nesting_ = 0;
};

}  // namespace baton::jinja
