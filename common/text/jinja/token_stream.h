#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/lexer.h"

namespace baton::jinja {

// The tokens of a template and the parser's position in them.
class TokenStream final {
 public:
  // `tokens` must end with kEnd. The position never moves past kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  Token Take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool Is(Token::Kind kind) const { return current().kind == kind; }
  bool IsOperator(std::string_view op) const {
    return Is(Token::Kind::kOperator) && current().text == op;
  }
  bool IsName(std::string_view name) const {
    return Is(Token::Kind::kName) && current().text == name;
  }

  bool TryOperator(std::string_view op) {
    if (!IsOperator(op)) return false;
    Take();
    return true;
  }
  bool TryName(std::string_view name) {
    if (!IsName(name)) return false;
    Take();
    return true;
  }

  Status ExpectOperator(std::string_view op) {
    return TryOperator(op) ? OkStatus() : Unexpected(op);
  }
  Status ExpectBlockEnd() {
    if (!Is(Token::Kind::kBlockEnd)) return Unexpected("the end of the tag");
    Take();
    return OkStatus();
  }
  StatusOr<std::string> ExpectName() {
    if (!Is(Token::Kind::kName)) return Unexpected("a name");
    return Take().text;
  }

  template <class... Args>
  Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument(
        "template line {}: {}", line(), fmt::format(format, std::forward<Args>(args)...));
  }
  Status Unexpected(std::string_view expected) const {
    return Error("expected {}, found {}", expected, Describe(current()));
  }

 private:
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kBlockEnd:
      case Token::Kind::kPrintEnd:
        return "the end of the tag";
      case Token::Kind::kString:
        return fmt::format("the string '{}'", token.text.substr(0, 40));
      default:
        return fmt::format("'{}'", token.text.substr(0, 40));
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace baton::jinja
