#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Expressions in the notation of EBNF that XGrammar reads. Each may stand in a sequence as it is.

// Of nothing: no text matches. What needs it is a dead end, which is removed later.
inline constexpr std::string_view kNoText = "[^\\x00-\\U0010FFFF]";

// The text itself.
std::string EbnfText(std::string_view text);
// One of `options`, without those that are kNoText.
std::string EbnfChoice(const std::vector<std::string>& options);
// `parts` one after the other, with the expression `between` between them; the empty text if there
// are none.
std::string EbnfSequence(const std::vector<std::string>& parts, std::string_view between = {});
// `expression`, which is one element, from `least` to `most` times; `most` below 0: any number.
std::string EbnfRepeat(std::string_view expression, int64_t least, int64_t most);
// Texts with none of `excluded` in them.
std::string EbnfTextWithout(const std::vector<std::string>& excluded);

// The rules of one grammar, made as expressions need them. Not thread-safe.
class EbnfRules final {
 public:
  // The name of a rule for `expression`; equal ones share a rule.
  std::string Add(const std::string& expression);
  // The name of a rule that Define completes, for one that refers to itself.
  std::string Declare();
  void Define(const std::string& name, std::string_view expression);

  // The grammar with the root rule `root`.
  std::string Grammar(std::string_view root) const;
  size_t bytes() const { return text_.size(); }

 private:
  std::map<std::string, std::string> names_;  // by expression
  std::string text_;
  size_t count_ = 0;
};

}  // namespace baton
