#include "common/text/jinja/parser.h"

#include <initializer_list>
#include <string>

#include "common/text/jinja/expression_parser.h"
#include "common/text/jinja/lexer.h"
#include "common/text/jinja/token_stream.h"

namespace baton::jinja {
namespace {

using Kind = Statement::Kind;
using StatementPtr = std::unique_ptr<Statement>;
using Names = std::initializer_list<std::string_view>;

constexpr int kMaxBlockDepth = 60;

class Parser final {
 public:
  explicit Parser(std::vector<Token> tokens) : in_(std::move(tokens)), expressions_(in_) {}

  StatusOr<Block> Run() { return ParseBlock({}); }

 private:
  // Parses statements up to a tag named in `ends` and leaves this name as the current token. When
  // `ends` is empty, parses to the end of the template.
  StatusOr<Block> ParseBlock(Names ends) {
    Block block;
    while (true) {
      switch (in_.current().kind) {
        case Token::Kind::kEnd:
          if (ends.size() == 0) return block;
          return in_.Error("a block is not closed with '{}'", *(ends.end() - 1));
        case Token::Kind::kData: {
          auto text = New(Kind::kText);
          text->text = Value::String(MarkedText(in_.Take().text, true), nullptr);
          block.push_back(std::move(text));
          break;
        }
        case Token::Kind::kPrintBegin: {
          BATON_ASSIGN_OR_RETURN(StatementPtr print, ParsePrint());
          block.push_back(std::move(print));
          break;
        }
        default: {
          in_.Take();  // kBlockBegin, the only other kind of token outside tags
          for (const std::string_view end : ends) {
            if (in_.IsName(end)) return block;
          }
          BATON_ASSIGN_OR_RETURN(StatementPtr statement, ParseTag());
          block.push_back(std::move(statement));
        }
      }
    }
  }

  StatementPtr New(Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = in_.line();
    return statement;
  }

  StatusOr<StatementPtr> ParsePrint() {
    in_.Take();
    auto print = New(Kind::kPrint);
    BATON_ASSIGN_OR_RETURN(print->value, expressions_.TupleOrExpr());
    if (!in_.Is(Token::Kind::kPrintEnd)) return in_.Unexpected("'}}'");
    in_.Take();
    return print;
  }

  StatusOr<StatementPtr> ParseTag() {
    if (++depth_ > kMaxBlockDepth)
      return in_.Error("blocks are nested more than {} deep", kMaxBlockDepth);
    auto statement = ParseTagByName();
    --depth_;
    return statement;
  }

  StatusOr<StatementPtr> ParseTagByName() {
    if (in_.TryName("if")) return ParseIf();
    if (in_.TryName("for")) return ParseFor();
    if (in_.TryName("set")) return ParseSet();
    if (in_.TryName("macro")) return ParseMacro();
    if (in_.TryName("call")) return ParseCallBlock();
    if (in_.TryName("filter")) return ParseFilterBlock();
    if (in_.TryName("with")) return ParseWith();
    if (in_.TryName("generation")) return ParseGeneration();
    if (in_.TryName("break")) return ParseJump(Kind::kBreak);
    if (in_.TryName("continue")) return ParseJump(Kind::kContinue);
    for (const std::string_view tag : {"include", "extends", "import", "from", "block"}) {
      if (in_.IsName(tag)) {
        return absl::UnimplementedError(fmt::format(
            "template line {}: '{}' needs other templates; a chat template stands alone",
            in_.line(),
            tag));
      }
    }
    return in_.Unexpected(
        "a tag (if, for, set, macro, call, filter, with, generation, break, continue)");
  }

  // Parses the body of `owner`, from the end of its tag through its closing tag `end`.
  Status ParseBody(Statement& owner, std::string_view end) {
    BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
    BATON_ASSIGN_OR_RETURN(owner.body, ParseBlock({end}));
    in_.Take();
    return in_.ExpectBlockEnd();
  }

  StatusOr<StatementPtr> ParseIf() {
    auto root = New(Kind::kIf);
    Statement* branch = root.get();
    int elifs = 0;
    while (true) {
      BATON_ASSIGN_OR_RETURN(branch->value, expressions_.TupleOrExpr());
      BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
      BATON_ASSIGN_OR_RETURN(branch->body, ParseBlock({"elif", "else", "endif"}));
      if (!in_.TryName("elif")) break;
      if (++elifs > kMaxElifs) return in_.Error("more than {} 'elif' branches", kMaxElifs);
      branch->otherwise.push_back(New(Kind::kIf));
      branch = branch->otherwise.back().get();
    }
    if (in_.TryName("else")) {
      BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
      BATON_ASSIGN_OR_RETURN(branch->otherwise, ParseBlock({"endif"}));
    }
    in_.Take();
    BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
    return root;
  }

  StatusOr<StatementPtr> ParseFor() {
    auto loop = New(Kind::kFor);
    BATON_ASSIGN_OR_RETURN(loop->target, ParseTargets("in"));
    if (!in_.TryName("in")) return in_.Unexpected("'in'");
    BATON_ASSIGN_OR_RETURN(loop->value, expressions_.TupleOrExpr(false));
    if (in_.TryName("if")) {
      BATON_ASSIGN_OR_RETURN(loop->condition, expressions_.Expr());
    }
    loop->recursive = in_.TryName("recursive");
    BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
    ++loops_;
    BATON_ASSIGN_OR_RETURN(loop->body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (in_.TryName("else")) {
      BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
      BATON_ASSIGN_OR_RETURN(loop->otherwise, ParseBlock({"endfor"}));
    }
    in_.Take();
    BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
    return loop;
  }

  // One or more targets, separated by commas.
  StatusOr<Target> ParseTargets(std::string_view end) {
    BATON_ASSIGN_OR_RETURN(Target first, ParseTarget());
    if (!in_.IsOperator(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (in_.TryOperator(",")) {
      if (in_.IsName(end) || in_.IsOperator(end) || in_.IsOperator(")")) break;
      BATON_ASSIGN_OR_RETURN(Target next, ParseTarget());
      tuple.parts.push_back(std::move(next));
    }
    return tuple;
  }

  StatusOr<Target> ParseTarget() {
    if (in_.TryOperator("(")) {
      if (++depth_ > kMaxBlockDepth)
        return in_.Error("targets are nested more than {} deep", kMaxBlockDepth);
      BATON_ASSIGN_OR_RETURN(Target inner, ParseTargets(")"));
      --depth_;
      BATON_RETURN_IF_ERROR(in_.ExpectOperator(")"));
      return inner;
    }
    Target target;
    BATON_ASSIGN_OR_RETURN(target.name, in_.ExpectName());
    if (in_.TryOperator(".")) {
      BATON_ASSIGN_OR_RETURN(target.attribute, in_.ExpectName());
    }
    return target;
  }

  StatusOr<StatementPtr> ParseSet() {
    auto set = New(Kind::kSet);
    BATON_ASSIGN_OR_RETURN(set->target, ParseTargets("="));
    if (in_.TryOperator("=")) {
      BATON_ASSIGN_OR_RETURN(set->value, expressions_.TupleOrExpr());
      BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
      return set;
    }
    set->kind = Kind::kSetBlock;
    if (in_.TryOperator("|")) {
      BATON_ASSIGN_OR_RETURN(set->value, expressions_.FilterChain());
    }
    BATON_RETURN_IF_ERROR(ParseBody(*set, "endset"));
    return set;
  }

  StatusOr<std::vector<Parameter>> ParseParameters() {
    std::vector<Parameter> parameters;
    while (!in_.TryOperator(")")) {
      if (!parameters.empty()) {
        BATON_RETURN_IF_ERROR(in_.ExpectOperator(","));
        if (in_.TryOperator(")")) break;
      }
      Parameter parameter;
      BATON_ASSIGN_OR_RETURN(parameter.name, in_.ExpectName());
      if (in_.TryOperator("=")) {
        BATON_ASSIGN_OR_RETURN(parameter.fallback, expressions_.Expr());
      } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
        return in_.Error("the parameter '{}' without a default follows one with a default",
                         parameter.name);
      }
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }

  StatusOr<StatementPtr> ParseMacro() {
    auto macro = New(Kind::kMacro);
    BATON_ASSIGN_OR_RETURN(macro->target.name, in_.ExpectName());
    BATON_RETURN_IF_ERROR(in_.ExpectOperator("("));
    BATON_ASSIGN_OR_RETURN(macro->parameters, ParseParameters());
    const int loops = std::exchange(loops_, 0);
    BATON_RETURN_IF_ERROR(ParseBody(*macro, "endmacro"));
    loops_ = loops;
    return macro;
  }

  StatusOr<StatementPtr> ParseCallBlock() {
    auto call = New(Kind::kCallBlock);
    if (in_.TryOperator("(")) {
      BATON_ASSIGN_OR_RETURN(call->parameters, ParseParameters());
    }
    BATON_ASSIGN_OR_RETURN(call->value, expressions_.Expr());
    if (call->value->kind != Expression::Kind::kCall)
      return in_.Error("'call' needs a call after it");
    const int loops = std::exchange(loops_, 0);
    BATON_RETURN_IF_ERROR(ParseBody(*call, "endcall"));
    loops_ = loops;
    return call;
  }

  StatusOr<StatementPtr> ParseFilterBlock() {
    auto filter = New(Kind::kFilterBlock);
    BATON_ASSIGN_OR_RETURN(filter->value, expressions_.FilterChain());
    BATON_RETURN_IF_ERROR(ParseBody(*filter, "endfilter"));
    return filter;
  }

  StatusOr<StatementPtr> ParseWith() {
    auto with = New(Kind::kWith);
    while (!in_.Is(Token::Kind::kBlockEnd)) {
      if (!with->assignments.empty()) BATON_RETURN_IF_ERROR(in_.ExpectOperator(","));
      BATON_ASSIGN_OR_RETURN(Target target, ParseTarget());
      BATON_RETURN_IF_ERROR(in_.ExpectOperator("="));
      BATON_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.Expr());
      with->assignments.emplace_back(std::move(target), std::move(value));
    }
    BATON_RETURN_IF_ERROR(ParseBody(*with, "endwith"));
    return with;
  }

  StatusOr<StatementPtr> ParseGeneration() {
    auto generation = New(Kind::kGeneration);
    BATON_RETURN_IF_ERROR(ParseBody(*generation, "endgeneration"));
    return generation;
  }

  StatusOr<StatementPtr> ParseJump(Kind kind) {
    auto jump = New(kind);
    if (loops_ == 0) return in_.Error("'break' and 'continue' belong into a loop");
    BATON_RETURN_IF_ERROR(in_.ExpectBlockEnd());
    return jump;
  }

  static constexpr int kMaxElifs = 100;

  TokenStream in_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

StatusOr<Block> Parse(std::string_view source) {
  BATON_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace baton::jinja
