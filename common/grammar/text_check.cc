#include "common/grammar/text_check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "common/base/shortened.h"
#include "common/grammar/escape_check.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/marked_formats.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

// The largest count in a repetition "{n}", "{n,}" or "{n,m}" whose text begins at `text`; 1 where
// there is no repetition.
int64_t RepeatsAt(std::string_view text) {
  if (!text.starts_with('{')) return 1;
  int64_t largest = 1;
  size_t at = 1;
  while (at < text.size() && text[at] != '}') {
    if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) {
      ++at;
      continue;
    }
    int64_t count = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), count);
    if (error == std::errc::result_out_of_range) return INT64_MAX;
    largest = std::max(largest, count);
    at = static_cast<size_t>(end - text.data());
  }
  return largest;
}

// Walks over a text and keeps the product of counts in each open group. A count stands behind its
// group, so the product of what is inside a group is multiplied when the group ends.
class Walk {
 public:
  Walk(std::string_view what, const GrammarLimits& limits) : what_(what), limits_(limits) {}

  Status Open() {
    products_.push_back(1);
    if (products_.size() <= static_cast<size_t>(limits_.max_nesting)) return OkStatus();
    return InvalidArgument("{} has groups nested more than {} deep", what_, limits_.max_nesting);
  }

  // An element that is repeated as the text `after` says.
  Status Element(int64_t inside, std::string_view after) {
    const int64_t repeats = RepeatsAt(after);
    int64_t product = 0;
    if (__builtin_mul_overflow(inside, repeats, &product) || product > limits_.max_repeats) {
      return InvalidArgument(
          "{} repeats an element {} times or more, nested counts multiplied; at most {} "
          "repetitions are supported",
          what_,
          repeats,
          limits_.max_repeats);
    }
    products_.back() = std::max(products_.back(), product);
    return OkStatus();
  }

  Status Close(std::string_view after) {
    if (products_.size() < 2) return OkStatus();  // a parser reports the unbalanced group
    const int64_t inside = products_.back();
    products_.pop_back();
    return Element(inside, after);
  }

 private:
  std::string_view what_;
  const GrammarLimits& limits_;
  std::vector<int64_t> products_ = {1};
};

// Names that XGrammar calls as functions in EBNF.
constexpr std::string_view kFunctions[] = {
    "TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch", "Regex", "Substring"};

bool IsNameByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Divides a text into elements and groups.
class Reader {
 public:
  Reader(std::string_view what, std::string_view text, const GrammarLimits& limits)
      : what_(what), text_(text), walk_(what, limits) {}

  Status Check() {
    while (at_ < text_.size()) BATON_RETURN_IF_ERROR(CheckNext());
    return OkStatus();
  }

 private:
  Status CheckNext() {
    const std::string_view rest = Rest();
    at_ = text_.size() - rest.size();
    if (rest.empty()) return OkStatus();
    const char c = rest[0];
    const std::string_view name = std::exchange(name_, std::string_view());
    if (c == '(') {
      ++at_;
      if (std::ranges::find(kFunctions, name) != std::end(kFunctions)) {
        return InvalidArgument(
            "{} calls {}; functions are not supported in a grammar", what_, name);
      }
      return walk_.Open();
    }
    if (c == '{') {  // belongs to the element before it
      const size_t begin = at_ + 1;
      at_ = std::min(text_.find('}', at_), text_.size() - 1) + 1;
      return CheckCounts(text_.substr(begin, at_ - begin));
    }
    if (c == ')') {
      ++at_;
      return walk_.Close(Rest());
    }
    if (IsNameByte(c)) {
      const size_t begin = at_;
      while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
      name_ = text_.substr(begin, at_ - begin);
      BATON_RETURN_IF_ERROR(CheckAttributes());
    } else if (c == '[' || c == '"') {
      BATON_RETURN_IF_ERROR(SkipTo(c == '[' ? ']' : '"'));
    } else if (c == '\\') {
      BATON_RETURN_IF_ERROR(SkipEscape());
    } else {
      ++at_;
    }
    return walk_.Element(1, Rest());
  }

  // Anything else between braces, such as a comment or a literal, would hide what stands behind it.
  Status CheckCounts(std::string_view counts) const {
    constexpr std::string_view kAllowed = "0123456789,} \t\r\n";
    if (counts.find_first_not_of(kAllowed) == std::string_view::npos) return OkStatus();
    return InvalidArgument(
        "{} has '{{{}'; a brace must begin a count of repetitions like {{3}}, {{3,}} or {{3,5}}, "
        "\"{{\" stands for a brace",
        what_,
        Shortened(counts, kMaxQuotedText));
  }

  // XGrammar reads brackets directly behind a name as attributes of a rule. Their quoted values may
  // contain a closing bracket, at which SkipTo would end a class.
  Status CheckAttributes() const {
    const std::string_view rest = text_.substr(at_);
    const bool quoted = rest.starts_with('[') && rest.find('"') < rest.find(']');
    if (!quoted) return OkStatus();
    return InvalidArgument(
        "{} has '{}' behind the name '{}'; attributes of rules are not supported, and a class with "
        "a quotation mark must not follow a name without a space",
        what_,
        Shortened(rest, kMaxQuotedText),
        Shortened(name_, kMaxQuotedText));
  }

  // The text from at_ on, without the white space and the comments that it begins with.
  std::string_view Rest() const {
    std::string_view rest = text_.substr(at_);
    while (!rest.empty()) {
      const bool comment = rest[0] == '#';
      const size_t skipped =
          comment ? rest.find_first_of("\r\n") : rest.find_first_not_of(" \t\r\n");
      if (skipped == 0) break;
      rest.remove_prefix(std::min(skipped, rest.size()));
    }
    return rest;
  }

  // Skips a class or a literal with its `closing` character. A line ends it, too.
  Status SkipTo(char closing) {
    for (++at_; at_ < text_.size() && text_[at_] != closing;) {
      if (text_[at_] == '\n' || text_[at_] == '\r') return OkStatus();  // an error
      if (text_[at_] == '\\') {
        BATON_RETURN_IF_ERROR(SkipEscape());
      } else {
        ++at_;
      }
    }
    at_ = std::min(at_ + 1, text_.size());
    return OkStatus();
  }

  Status SkipEscape() {
    BATON_ASSIGN_OR_RETURN(const size_t length, CheckedEscape(what_, text_, at_));
    at_ += length;
    return OkStatus();
  }

  const std::string_view what_;
  const std::string_view text_;
  Walk walk_;
  size_t at_ = 0;
  std::string_view name_;  // the name before at_, if only white space and comments are between
};

}  // namespace

Status CheckTextBytes(std::string_view what, std::string_view text, const GrammarLimits& limits) {
  if (text.empty()) return InvalidArgument("{} is empty", what);
  if (text.size() > limits.max_text_bytes) {
    return InvalidArgument(
        "{} has {} bytes; at most {} are supported", what, text.size(), limits.max_text_bytes);
  }
  if (!IsValidUtf8(text)) return InvalidArgument("{} is not valid UTF-8", what);
  if (text.find('\0') != std::string_view::npos) {
    return InvalidArgument("{} contains a NUL character; \\x00 stands for one", what);
  }
  return CheckUnsigned(what, text);
}

Status CheckEbnf(std::string_view what, std::string_view text, const GrammarLimits& limits) {
  BATON_RETURN_IF_ERROR(CheckTextBytes(what, text, limits));
  return Reader(what, text, limits).Check();
}

}  // namespace baton
