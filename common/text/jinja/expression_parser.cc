#include "common/text/jinja/expression_parser.h"

#include <algorithm>

#include "common/text/jinja/objects.h"

namespace baton::jinja {
namespace {

using Kind = Expression::Kind;

constexpr int kMaxDepth = 150;    // levels of the tree, which a long chain of operators makes deep
constexpr int kMaxNesting = 100;  // levels of brackets and prefix operators

bool IsTestArgument(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    case Token::Kind::kName:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case Token::Kind::kOperator:
      return token.text == "(" || token.text == "[" || token.text == "{";
    default:
      return false;
  }
}

// Counts one level of recursion during its lifetime.
class Level final {
 public:
  explicit Level(int& nesting) : nesting_(nesting) { ++nesting_; }
  ~Level() { --nesting_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& nesting_;
};

}  // namespace

ExpressionPtr ExpressionParser::New(Kind kind, std::string name) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = in_.line();
  node->name = std::move(name);
  return node;
}

StatusOr<ExpressionPtr> ExpressionParser::Finish(ExpressionPtr node) const {
  int deepest = 0;
  const auto look = [&deepest](const ExpressionPtr& part) {
    if (part != nullptr) deepest = std::max(deepest, part->depth);
  };
  for (const auto& operand : node->operands) look(operand);
  for (const auto& argument : node->arguments.positional) look(argument);
  for (const auto& argument : node->arguments.named) look(argument.second);
  look(node->arguments.rest);
  look(node->arguments.rest_named);
  node->depth = deepest + 1;
  if (node->depth > kMaxDepth)
    return in_.Error("an expression is more than {} levels deep", kMaxDepth);
  return node;
}

StatusOr<ExpressionPtr> ExpressionParser::Expr() {
  const Level level(nesting_);
  if (nesting_ > kMaxNesting)
    return in_.Error("an expression nests more than {} brackets", kMaxNesting);
  return Condition();
}

StatusOr<ExpressionPtr> ExpressionParser::ExprWithoutCondition() {
  return Or();
}

StatusOr<ExpressionPtr> ExpressionParser::TupleOrExpr(bool with_condition) {
  const auto element = [&] { return with_condition ? Expr() : ExprWithoutCondition(); };
  BATON_ASSIGN_OR_RETURN(ExpressionPtr first, element());
  if (!in_.IsOperator(",")) return first;
  auto tuple = New(Kind::kTuple);
  tuple->operands.push_back(std::move(first));
  while (in_.TryOperator(",")) {
    const bool ends = in_.Is(Token::Kind::kBlockEnd) || in_.Is(Token::Kind::kPrintEnd) ||
                      in_.IsOperator(")") || in_.IsOperator("=");
    if (ends) break;
    BATON_ASSIGN_OR_RETURN(ExpressionPtr next, element());
    tuple->operands.push_back(std::move(next));
  }
  return Finish(std::move(tuple));
}

StatusOr<ExpressionPtr> ExpressionParser::Condition() {
  BATON_ASSIGN_OR_RETURN(ExpressionPtr node, Or());
  while (in_.TryName("if")) {
    auto condition = New(Kind::kCondition);
    BATON_ASSIGN_OR_RETURN(ExpressionPtr test, Or());
    ExpressionPtr otherwise;
    if (in_.TryName("else")) {
      BATON_ASSIGN_OR_RETURN(otherwise, Expr());
    }
    condition->operands.push_back(std::move(node));
    condition->operands.push_back(std::move(test));
    condition->operands.push_back(std::move(otherwise));
    BATON_ASSIGN_OR_RETURN(node, Finish(std::move(condition)));
  }
  return node;
}

StatusOr<ExpressionPtr> ExpressionParser::LeftAssociative(
    Rule part, std::initializer_list<std::string_view> operators) {
  BATON_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*part)());
  while (true) {
    const auto matches = [this](std::string_view op) {
      return in_.IsOperator(op) || in_.IsName(op);
    };
    if (std::none_of(operators.begin(), operators.end(), matches)) return left;
    auto node = New(Kind::kBinary, in_.current().text);
    in_.Take();
    BATON_ASSIGN_OR_RETURN(ExpressionPtr right, (this->*part)());
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    BATON_ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
}

StatusOr<ExpressionPtr> ExpressionParser::Or() {
  return LeftAssociative(&ExpressionParser::And, {"or"});
}
StatusOr<ExpressionPtr> ExpressionParser::And() {
  return LeftAssociative(&ExpressionParser::Not, {"and"});
}

StatusOr<ExpressionPtr> ExpressionParser::Not() {
  if (!in_.IsName("not")) return Compare();
  const Level level(nesting_);
  if (nesting_ > kMaxNesting) return in_.Error("more than {} nested 'not'", kMaxNesting);
  auto node = New(Kind::kUnary, "not");
  in_.Take();
  BATON_ASSIGN_OR_RETURN(ExpressionPtr operand, Not());
  node->operands.push_back(std::move(operand));
  return Finish(std::move(node));
}

StatusOr<ExpressionPtr> ExpressionParser::Compare() {
  BATON_ASSIGN_OR_RETURN(ExpressionPtr first, Sum());
  auto node = New(Kind::kCompare);
  node->operands.push_back(std::move(first));
  while (true) {
    std::string op;
    for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (in_.IsOperator(symbol)) op = symbol;
    }
    if (in_.IsName("in")) op = "in";
    if (in_.IsName("not") && in_.next().kind == Token::Kind::kName && in_.next().text == "in") {
      in_.Take();
      op = "not in";
    }
    if (op.empty()) break;
    in_.Take();
    BATON_ASSIGN_OR_RETURN(ExpressionPtr operand, Sum());
    node->comparisons.push_back(std::move(op));
    node->operands.push_back(std::move(operand));
  }
  if (node->comparisons.empty()) return std::move(node->operands[0]);
  return Finish(std::move(node));
}

StatusOr<ExpressionPtr> ExpressionParser::Sum() {
  return LeftAssociative(&ExpressionParser::Concatenation, {"+", "-"});
}
StatusOr<ExpressionPtr> ExpressionParser::Concatenation() {
  return LeftAssociative(&ExpressionParser::Product, {"~"});
}
StatusOr<ExpressionPtr> ExpressionParser::Product() {
  return LeftAssociative(&ExpressionParser::Power, {"*", "/", "//", "%"});
}
StatusOr<ExpressionPtr> ExpressionParser::Power() {
  return LeftAssociative(&ExpressionParser::UnaryWithFilters, {"**"});
}
StatusOr<ExpressionPtr> ExpressionParser::UnaryWithFilters() {
  return Unary(true);
}

StatusOr<ExpressionPtr> ExpressionParser::Unary(bool with_filters) {
  const Level level(nesting_);
  if (nesting_ > kMaxNesting)
    return in_.Error("more than {} nested signs and brackets", kMaxNesting);
  ExpressionPtr node;
  if (in_.IsOperator("-") || in_.IsOperator("+")) {
    auto sign = New(Kind::kUnary, in_.current().text);
    in_.Take();
    BATON_ASSIGN_OR_RETURN(ExpressionPtr operand, Unary(false));
    sign->operands.push_back(std::move(operand));
    BATON_ASSIGN_OR_RETURN(node, Finish(std::move(sign)));
  } else {
    BATON_ASSIGN_OR_RETURN(node, Primary());
  }
  BATON_ASSIGN_OR_RETURN(node, Postfix(std::move(node)));
  if (!with_filters) return node;
  return FiltersAndTests(std::move(node));
}

StatusOr<ExpressionPtr> ExpressionParser::Primary() {
  auto node = New(Kind::kLiteral);
  switch (in_.current().kind) {
    case Token::Kind::kName:
      return Name();
    case Token::Kind::kString: {
      std::string text = in_.Take().text;
      while (in_.Is(Token::Kind::kString)) text += in_.Take().text;
      node->literal = Value::String(MarkedText(std::move(text), true), nullptr);
      return node;
    }
    case Token::Kind::kInteger:
      node->literal = Value::Int(in_.Take().integer);
      return node;
    case Token::Kind::kFloat:
      node->literal = Value::Float(in_.Take().number);
      return node;
    default:
      break;
  }
  if (in_.TryOperator("(")) return Parenthesised();
  if (in_.TryOperator("[")) return ListLiteral();
  if (in_.TryOperator("{")) return DictLiteral();
  return in_.Unexpected("an expression");
}

StatusOr<ExpressionPtr> ExpressionParser::Name() {
  auto node = New(Kind::kLiteral);
  const std::string name = in_.Take().text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    node->literal = Value::Bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->literal = Value::None();
  } else {
    node->kind = Kind::kVariable;
    node->name = name;
  }
  return node;
}

StatusOr<ExpressionPtr> ExpressionParser::Parenthesised() {
  if (in_.TryOperator(")")) return New(Kind::kTuple);
  BATON_ASSIGN_OR_RETURN(ExpressionPtr node, TupleOrExpr());
  BATON_RETURN_IF_ERROR(in_.ExpectOperator(")"));
  return node;
}

StatusOr<ExpressionPtr> ExpressionParser::ListLiteral() {
  auto node = New(Kind::kList);
  while (!in_.TryOperator("]")) {
    if (!node->operands.empty()) {
      BATON_RETURN_IF_ERROR(in_.ExpectOperator(","));
      if (in_.TryOperator("]")) break;
    }
    BATON_ASSIGN_OR_RETURN(ExpressionPtr item, Expr());
    node->operands.push_back(std::move(item));
  }
  return Finish(std::move(node));
}

StatusOr<ExpressionPtr> ExpressionParser::DictLiteral() {
  auto node = New(Kind::kDict);
  while (!in_.TryOperator("}")) {
    if (!node->operands.empty()) {
      BATON_RETURN_IF_ERROR(in_.ExpectOperator(","));
      if (in_.TryOperator("}")) break;
    }
    BATON_ASSIGN_OR_RETURN(ExpressionPtr key, Expr());
    BATON_RETURN_IF_ERROR(in_.ExpectOperator(":"));
    BATON_ASSIGN_OR_RETURN(ExpressionPtr value, Expr());
    node->operands.push_back(std::move(key));
    node->operands.push_back(std::move(value));
  }
  return Finish(std::move(node));
}

StatusOr<ExpressionPtr> ExpressionParser::Postfix(ExpressionPtr node) {
  while (true) {
    if (in_.TryOperator(".")) {
      auto attribute = New(Kind::kAttribute);
      attribute->operands.push_back(std::move(node));
      if (in_.Is(Token::Kind::kInteger)) {
        auto index = New(Kind::kLiteral);
        index->literal = Value::Int(in_.Take().integer);
        attribute->kind = Kind::kItem;
        attribute->operands.push_back(std::move(index));
      } else {
        BATON_ASSIGN_OR_RETURN(attribute->name, in_.ExpectName());
      }
      BATON_ASSIGN_OR_RETURN(node, Finish(std::move(attribute)));
    } else if (in_.TryOperator("[")) {
      BATON_ASSIGN_OR_RETURN(node, Subscript(std::move(node)));
    } else if (in_.TryOperator("(")) {
      BATON_ASSIGN_OR_RETURN(node, Call(std::move(node)));
    } else {
      return node;
    }
  }
}

StatusOr<ExpressionPtr> ExpressionParser::Call(ExpressionPtr node) {
  auto call = New(Kind::kCall);
  call->operands.push_back(std::move(node));
  BATON_ASSIGN_OR_RETURN(call->arguments, Arguments());
  return Finish(std::move(call));
}

StatusOr<ExpressionPtr> ExpressionParser::Subscript(ExpressionPtr node) {
  auto item = New(Kind::kItem);
  item->operands.push_back(std::move(node));
  const auto ends_part = [this] { return in_.IsOperator(":") || in_.IsOperator("]"); };
  ExpressionPtr first;
  if (!ends_part()) {
    BATON_ASSIGN_OR_RETURN(first, Expr());
  }
  item->operands.push_back(std::move(first));
  while (item->operands.size() < 4 && in_.TryOperator(":")) {
    item->kind = Kind::kSlice;
    ExpressionPtr part;
    if (!ends_part()) {
      BATON_ASSIGN_OR_RETURN(part, Expr());
    }
    item->operands.push_back(std::move(part));
  }
  if (item->kind == Kind::kSlice) item->operands.resize(4);
  if (item->kind == Kind::kItem && item->operands[1] == nullptr) return in_.Unexpected("an index");
  BATON_RETURN_IF_ERROR(in_.ExpectOperator("]"));
  return Finish(std::move(item));
}

StatusOr<ExpressionPtr> ExpressionParser::FiltersAndTests(ExpressionPtr node) {
  while (true) {
    if (in_.TryOperator("|")) {
      BATON_ASSIGN_OR_RETURN(node, Filter(std::move(node)));
    } else if (in_.TryName("is")) {
      BATON_ASSIGN_OR_RETURN(node, Test(std::move(node)));
    } else if (in_.TryOperator("(")) {
      BATON_ASSIGN_OR_RETURN(node, Call(std::move(node)));
    } else {
      return node;
    }
  }
}

StatusOr<ExpressionPtr> ExpressionParser::Filter(ExpressionPtr node) {
  auto filter = New(Kind::kFilter);
  filter->operands.push_back(std::move(node));
  BATON_ASSIGN_OR_RETURN(filter->name, in_.ExpectName());
  if (in_.TryOperator("(")) {
    BATON_ASSIGN_OR_RETURN(filter->arguments, Arguments());
  }
  return Finish(std::move(filter));
}

StatusOr<ExpressionPtr> ExpressionParser::FilterChain() {
  BATON_ASSIGN_OR_RETURN(ExpressionPtr node, Filter(nullptr));
  while (in_.TryOperator("|")) {
    BATON_ASSIGN_OR_RETURN(node, Filter(std::move(node)));
  }
  return node;
}

StatusOr<ExpressionPtr> ExpressionParser::Test(ExpressionPtr node) {
  const bool negated = in_.TryName("not");
  auto test = New(Kind::kTest);
  test->operands.push_back(std::move(node));
  BATON_ASSIGN_OR_RETURN(test->name, in_.ExpectName());
  if (in_.TryOperator("(")) {
    BATON_ASSIGN_OR_RETURN(test->arguments, Arguments());
  } else if (IsTestArgument(in_.current())) {
    if (in_.IsName("is")) return in_.Error("tests cannot be chained with 'is'");
    if (!in_.IsName("if") && !in_.IsName("in") && !in_.IsName("not")) {
      BATON_ASSIGN_OR_RETURN(ExpressionPtr argument, Primary());
      BATON_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
      test->arguments.positional.push_back(std::move(argument));
    }
  }
  BATON_ASSIGN_OR_RETURN(node, Finish(std::move(test)));
  if (!negated) return node;
  auto negation = New(Kind::kUnary, "not");
  negation->operands.push_back(std::move(node));
  return Finish(std::move(negation));
}

StatusOr<CallArguments> ExpressionParser::Arguments() {
  CallArguments arguments;
  bool first = true;
  while (!in_.TryOperator(")")) {
    if (!first) {
      BATON_RETURN_IF_ERROR(in_.ExpectOperator(","));
      if (in_.TryOperator(")")) break;
    }
    first = false;
    if (in_.TryOperator("**")) {
      BATON_ASSIGN_OR_RETURN(arguments.rest_named, Expr());
    } else if (in_.TryOperator("*")) {
      BATON_ASSIGN_OR_RETURN(arguments.rest, Expr());
    } else if (in_.Is(Token::Kind::kName) && in_.next().kind == Token::Kind::kOperator &&
               in_.next().text == "=") {
      std::string name = in_.Take().text;
      in_.Take();
      BATON_ASSIGN_OR_RETURN(ExpressionPtr value, Expr());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!arguments.named.empty()) return in_.Error("a positional argument follows a named one");
      BATON_ASSIGN_OR_RETURN(ExpressionPtr value, Expr());
      arguments.positional.push_back(std::move(value));
    }
  }
  return arguments;
}

}  // namespace baton::jinja
