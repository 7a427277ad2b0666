#include "common/text/oniguruma_syntax.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {
namespace {

// PCRE2's own \s also matches U+180E, which is not White_Space.
constexpr std::string_view kSpaces =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Oniguruma's \w: letters (also those in circles and squares), marks, digits, connectors, and the
// six numbers of Latin-1 that are no digits. PCRE2's own \w does not match marks and connectors.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})"
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

constexpr int kDeepestSet = 8;

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  StatusOr<std::string> Run() {
    std::string out;
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '[') {
        BATON_ASSIGN_OR_RETURN(const std::string set, Set(1));
        out += set;
      } else if (pattern_[at_] == '\\') {
        out += EscapeOutsideOfSets();
      } else {
        out.push_back(pattern_[at_++]);
      }
    }
    return out;
  }

 private:
  bool Sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  // The two characters of an escape, or one where the pattern ends.
  std::string_view TakeEscape() {
    const std::string_view escape = pattern_.substr(at_, 2);
    at_ += escape.size();
    return escape;
  }

  std::string EscapeOutsideOfSets() {
    const std::string_view escape = TakeEscape();
    if (escape == R"(\s)") return fmt::format("[{}]", kSpaces);
    if (escape == R"(\S)") return fmt::format("[^{}]", kSpaces);
    if (escape == R"(\w)") return fmt::format("[{}]", kWord);
    if (escape == R"(\W)") return fmt::format("[^{}]", kWord);
    if (escape == R"(\b)") return fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
    if (escape == R"(\B)") return fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
    return std::string(escape);
  }

  // What one side of && matches: some characters and other sets.
  StatusOr<std::string> Operand(int depth, bool first) {
    std::string members;
    std::vector<std::string> sets;
    while (at_ < pattern_.size() && !Sees("&&")) {
      if (Sees("]") && !(first && members.empty() && sets.empty())) break;
      if (Sees("[:")) {
        const size_t end = pattern_.find(":]", at_);
        if (end == std::string_view::npos) break;
        members += pattern_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else if (Sees("[")) {
        BATON_ASSIGN_OR_RETURN(sets.emplace_back(), Set(depth + 1));
      } else if (Sees("\\")) {
        const std::string_view escape = TakeEscape();
        members += escape == R"(\s)" ? kSpaces : escape == R"(\w)" ? kWord : escape;
      } else if (Sees("]")) {
        members += R"(\])";  // as the first member
        ++at_;
      } else {
        members.push_back(pattern_[at_++]);
      }
    }
    if (sets.empty()) return members;
    if (!members.empty()) sets.push_back(fmt::format("[{}]", members));
    return fmt::format("(?:{})", fmt::join(sets, "|"));
  }

  // A set from its bracket on, as a pattern that matches one character.
  StatusOr<std::string> Set(int depth) {
    if (depth > kDeepestSet) {
      return InvalidArgument(
          "split pattern '{}' nests more than {} sets of characters", pattern_, kDeepestSet);
    }
    const size_t begin = at_++;
    const bool negated = Sees("^");
    if (negated) ++at_;
    std::vector<std::string> operands;
    do {
      if (!operands.empty()) at_ += 2;  // &&
      BATON_ASSIGN_OR_RETURN(operands.emplace_back(), Operand(depth, operands.empty()));
    } while (Sees("&&"));
    if (!Sees("]")) {
      return InvalidArgument(
          "split pattern '{}': the set that begins at byte {} has no end", pattern_, begin);
    }
    ++at_;
    const bool is_plain = operands.size() == 1 && !operands[0].starts_with("(?:");
    if (is_plain) return fmt::format("[{}{}]", negated ? "^" : "", operands[0]);
    std::string all;
    for (std::string& operand : operands) {
      if (!operand.starts_with("(?:")) operand = fmt::format("[{}]", operand);
      all += &operand == &operands.back() ? operand : fmt::format("(?={})", operand);
    }
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  const std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

StatusOr<std::string> Pcre2Of(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace baton
