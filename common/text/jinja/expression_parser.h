#pragma once

#include "common/base/status.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/token_stream.h"

namespace baton::jinja {

// Parses expressions by recursive descent, with the grammar and precedences of Jinja 3.1. The depth
// is bounded.
class ExpressionParser final {
 public:
  explicit ExpressionParser(TokenStream& in) : in_(in) {}

  // One expression, without commas outside of brackets.
  StatusOr<ExpressionPtr> Expr();
  // One expression that ends before a following `if` (for the sequence of a loop).
  StatusOr<ExpressionPtr> ExprWithoutCondition();
  // One expression, or several with commas between them, which make a tuple.
  StatusOr<ExpressionPtr> TupleOrExpr(bool with_condition = true);
  // The arguments of a call, from the token after '(' on. Consumes the ')'.
  StatusOr<CallArguments> Arguments();
  // The filters `name | name …` of a filter or set block, which apply to the block's text.
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
  // Sets the depth of `node` and returns the node, or an error when it is too deep.
  StatusOr<ExpressionPtr> Finish(ExpressionPtr node) const;

  TokenStream& in_;
  int nesting_ = 0;
};

}  // namespace baton::jinja
