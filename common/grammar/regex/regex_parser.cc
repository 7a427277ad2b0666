#include "common/grammar/regex/regex_parser.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/ascii.h>

#include "common/base/shortened.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/text_check.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Kind = RegexNode::Kind;

constexpr char32_t kMaxCodePoint = 0x10FFFF;

bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

// The set of \d, \w or \s, and of their opposites; nothing for another letter.
std::optional<CodePoints> EscapedSet(char letter) {
  static const CodePoints digits({{'0', '9'}});
  static const CodePoints word({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  static const CodePoints space({{'\t', '\r'},
                                 {' ', ' '},
                                 {0xA0, 0xA0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200A},
                                 {0x2028, 0x2029},
                                 {0x202F, 0x202F},
                                 {0x205F, 0x205F},
                                 {0x3000, 0x3000},
                                 {0xFEFF, 0xFEFF}});
  switch (letter) {
    case 'd':
      return digits;
    case 'D':
      return digits.Complement();
    case 'w':
      return word;
    case 'W':
      return word.Complement();
    case 's':
      return space;
    case 'S':
      return space.Complement();
    default:
      return std::nullopt;
  }
}

const CodePoints& AllButLineEnds() {
  static const CodePoints set =
      CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
  return set;
}

CodePoints Single(char32_t character) {
  return CodePoints({{character, character}});
}

// A part and the largest product of counts of repetitions around one of its elements.
struct Parsed {
  RegexNode node;
  int64_t repeats = 1;
};

class Parser {
 public:
  Parser(std::string_view what, std::string_view text, const GrammarLimits& limits)
      : what_(what), text_(text), limits_(limits) {}

  StatusOr<RegexNode> Parse() {
    BATON_ASSIGN_OR_RETURN(Parsed all, Choice(0));
    if (at_ < text_.size()) return Wrong("has a ) without a (");
    return std::move(all.node);
  }

 private:
  bool At(std::string_view token) const { return text_.substr(at_).starts_with(token); }
  bool Take(std::string_view token) {
    if (!At(token)) return false;
    at_ += token.size();
    return true;
  }

  Status Wrong(std::string_view why) const {
    const std::string rest = Shortened(text_.substr(at_), kMaxQuotedText);
    if (rest.empty()) return InvalidArgument("{} {}, at its end", what_, why);
    return InvalidArgument("{} {}, at '{}'", what_, why, rest);
  }

  StatusOr<Parsed> Choice(int nesting) {
    if (nesting >= limits_.max_nesting) {
      return InvalidArgument("{} has groups nested more than {} deep", what_, limits_.max_nesting);
    }
    std::vector<RegexNode> options;
    int64_t repeats = 1;
    do {
      std::vector<RegexNode> parts;
      while (at_ < text_.size() && !At("|") && !At(")")) {
        BATON_ASSIGN_OR_RETURN(Parsed part, Term(nesting));
        repeats = std::max(repeats, part.repeats);
        parts.push_back(std::move(part.node));
      }
      options.push_back(SequenceNode(std::move(parts)));
    } while (Take("|"));
    return Parsed{ChoiceNode(std::move(options)), repeats};
  }

  StatusOr<Parsed> Term(int nesting) {
    if (Take("^")) return Parsed{{.kind = Kind::kBegin}};
    if (Take("$")) return Parsed{{.kind = Kind::kEnd}};
    if (At("*") || At("+") || At("?") || At("{")) return Wrong("repeats nothing");
    BATON_ASSIGN_OR_RETURN(Parsed atom, Atom(nesting));
    if (!At("*") && !At("+") && !At("?") && !At("{")) return atom;
    return Repeated(std::move(atom));
  }

  StatusOr<Parsed> Repeated(Parsed atom) {
    int64_t least = 0;
    int64_t most = RegexNode::kNoLimit;
    if (Take("?")) {
      most = 1;
    } else if (Take("+")) {
      least = 1;
    } else if (!Take("*")) {
      BATON_RETURN_IF_ERROR(Counts(least, most));
    }
    Take("?");  // as few as possible: the same texts match
    if (At("*") || At("+") || At("?") || At("{")) return Wrong("has two repetitions in a row");
    const int64_t count = std::max({least, most, int64_t{1}});
    int64_t repeats = 0;
    if (__builtin_mul_overflow(atom.repeats, count, &repeats) || repeats > limits_.max_repeats) {
      return InvalidArgument(
          "{} repeats an element {} times or more, nested counts multiplied; at most {} "
          "repetitions are supported",
          what_,
          count,
          limits_.max_repeats);
    }
    return Parsed{RepeatNode(std::move(atom.node), least, most), repeats};
  }

  // {n}, {n,} or {n,m}.
  Status Counts(int64_t& least, int64_t& most) {
    const std::string_view rest = text_.substr(at_);
    const std::string_view counts = rest.substr(1, rest.find('}') - 1);
    const char* const end = counts.data() + counts.size();
    const auto count = [&](const char* from, int64_t& value) {
      const auto [to, error] = std::from_chars(from, end, value);
      if (error == std::errc::result_out_of_range) value = INT64_MAX;
      return IsDigit(from == end ? ' ' : *from) ? to : nullptr;
    };
    const char* at =
        rest.find('}') == std::string_view::npos ? nullptr : count(counts.data(), least);
    if (at != nullptr && at == end) {
      most = least;
    } else if (at != nullptr && *at == ',' && at + 1 != end) {
      at = count(at + 1, most);
    } else if (at != nullptr && *at == ',') {
      ++at;
    }
    if (at != end) {
      return InvalidArgument(
          "{} has '{}'; a brace must begin a count of repetitions like {{3}}, {{3,}} or {{3,5}}, "
          "\\{{ stands for a brace",
          what_,
          Shortened(rest, kMaxQuotedText));
    }
    if (most != RegexNode::kNoLimit && most < least) return Wrong("has counts in the wrong order");
    at_ += counts.size() + 2;
    return OkStatus();
  }

  StatusOr<Parsed> Atom(int nesting) {
    if (At("(")) return Group(nesting);
    if (Take(".")) return Parsed{ClassNode(AllButLineEnds())};
    if (At("[")) {
      BATON_ASSIGN_OR_RETURN(CodePoints characters, Class());
      return Parsed{ClassNode(std::move(characters))};
    }
    if (At("\\")) {
      BATON_ASSIGN_OR_RETURN(CodePoints characters, Escape(/*in_class=*/false));
      return Parsed{ClassNode(std::move(characters))};
    }
    return Parsed{ClassNode(Single(Character()))};
  }

  char32_t Character() {
    const CodePoint point = DecodeUtf8(text_, at_);
    at_ += point.length;
    return point.value;
  }

  StatusOr<Parsed> Group(int nesting) {
    const size_t begin = at_;
    at_ += 1;
    if (Take("?")) {
      if (At("=") || At("!") || At("<=") || At("<!")) {
        return Wrong("looks ahead or behind, which is not supported");
      }
      if (!Take(":")) BATON_RETURN_IF_ERROR(GroupName());
    }
    BATON_ASSIGN_OR_RETURN(Parsed inside, Choice(nesting + 1));
    if (Take(")")) return inside;
    at_ = begin;
    return Wrong("has a ( without a )");
  }

  Status GroupName() {
    if (!Take("<")) return Wrong("has flags, which are not supported");
    const std::string_view name = text_.substr(at_, text_.find('>', at_) - at_);
    const auto plain = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    if (name.empty() || !std::ranges::all_of(name, plain) || at_ + name.size() == text_.size()) {
      return Wrong("has a group whose name is not made of ASCII letters and digits");
    }
    at_ += name.size() + 1;
    return OkStatus();
  }

  StatusOr<CodePoints> Class() {
    const size_t begin = at_;
    at_ += 1;
    const bool negated = Take("^");
    std::vector<CodePoints::Range> ranges;
    while (at_ < text_.size() && !At("]")) {
      BATON_ASSIGN_OR_RETURN(CodePoints first, ClassAtom());
      const bool range = At("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range || !IsOne(first)) {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      const size_t dash = at_++;
      BATON_ASSIGN_OR_RETURN(const CodePoints last, ClassAtom());
      if (!IsOne(last)) {  // as [a-\d], where the dash is a character
        at_ = dash;
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        ranges.push_back({'-', '-'});
        ++at_;
        continue;
      }
      const CodePoints::Range both = {first.ranges()[0].first, last.ranges()[0].first};
      if (both.first > both.last) return Wrong("has a range of a class in the wrong order, before");
      ranges.push_back(both);
    }
    if (!Take("]")) {
      at_ = begin;
      return Wrong("has a [ without a ]");
    }
    CodePoints characters(ranges);
    return negated ? characters.Complement() : characters;
  }

  static bool IsOne(const CodePoints& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  StatusOr<CodePoints> ClassAtom() {
    if (At("\\")) return Escape(/*in_class=*/true);
    return Single(Character());
  }

  StatusOr<CodePoints> Escape(bool in_class) {
    const size_t begin = at_;
    at_ += 1;
    const char letter = at_ < text_.size() ? text_[at_] : '\0';
    at_ += 1;
    if (auto set = EscapedSet(letter); set.has_value()) return *std::move(set);
    constexpr std::string_view kLetters = "nrtfv";
    constexpr std::string_view kControls = "\n\r\t\f\v";
    if (const size_t at = kLetters.find(letter); at != std::string_view::npos) {
      return Single(static_cast<char32_t>(kControls[at]));
    }
    if (letter == 'b' && in_class) return Single('\b');
    if (letter == '0' && (at_ == text_.size() || !IsDigit(text_[at_]))) return Single(0);
    if (absl::ascii_ispunct(static_cast<unsigned char>(letter)) || letter == ' ') {
      return Single(static_cast<char32_t>(letter));
    }
    if (letter == 'c' && at_ < text_.size() &&
        absl::ascii_isalpha(static_cast<unsigned char>(text_[at_]))) {
      return Single(static_cast<char32_t>(text_[at_++] & 31));
    }
    const std::optional<char32_t> number = Numbered(letter);
    if (number.has_value()) return Single(*number);
    at_ = begin;
    constexpr std::string_view kUnsupported = "bBkpP123456789";
    if (letter != '\0' && kUnsupported.find(letter) != std::string_view::npos) {
      return Wrong("has a word boundary, a back reference or \\p, which are not supported");
    }
    return Wrong(
        "has an escape of no known meaning (\\x must have exactly two hexadecimal digits, \\u four "
        "or braces and \\U eight, which must name a character of Unicode; \\c a letter from a to "
        "z)");
  }

  // The character of \xHH, \uHHHH, \u{H…} or \UHHHHHHHH behind its letter.
  std::optional<char32_t> Numbered(char letter) {
    const std::string_view rest = text_.substr(std::min(at_, text_.size()));
    std::string_view digits;
    size_t length = 0;
    if (letter == 'u' && rest.starts_with('{')) {
      const size_t end = rest.find('}');
      if (end == std::string_view::npos) return std::nullopt;
      digits = rest.substr(1, end - 1);
      length = end + 1;
      if (digits.size() > 6) return std::nullopt;
    } else {
      length = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
      digits = rest.substr(0, length);
      if (digits.size() < length) return std::nullopt;
    }
    const auto is_hex = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
    if (digits.empty() || !std::ranges::all_of(digits, is_hex)) return std::nullopt;
    uint32_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
    at_ += length;
    return value;
  }

  const std::string_view what_;
  const std::string_view text_;
  const GrammarLimits& limits_;
  size_t at_ = 0;
};

}  // namespace

StatusOr<RegexNode> ParseRegex(std::string_view what,
                               std::string_view text,
                               const GrammarLimits& limits) {
  BATON_RETURN_IF_ERROR(CheckTextBytes(what, text, limits));
  return Parser(what, text, limits).Parse();
}

}  // namespace baton
