#include "common/grammar/regex/regex_text.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/grammar/ebnf_rules.h"
#include "common/grammar/marked_formats.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Kind = RegexNode::Kind;

constexpr int64_t kNoLimit = RegexNode::kNoLimit;
// A class without a character. What needs one is a dead end, which is removed later.
constexpr std::string_view kNothing = "[^\\x00-\xF4\x8F\xBF\xBF]";
// A text without a character.
constexpr std::string_view kEmpty = "(|)";

bool IsControl(char32_t c) {
  return c < 0x20;
}

// A character outside of classes.
std::string Literal(char32_t c) {
  constexpr std::string_view kSpecial = "^$.*+?()[]{}|\\/";
  std::string text;
  if (c < 0x80 && kSpecial.find(static_cast<char>(c)) != std::string_view::npos) text += '\\';
  AppendUtf8(text, c);
  return text;
}

// A character in a class.
std::string InClass(char32_t c) {
  constexpr std::string_view kSpecial = "[]\\-";
  if (IsControl(c)) return fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  std::string text;
  if (c < 0x80 && kSpecial.find(static_cast<char>(c)) != std::string_view::npos) text += '\\';
  AppendUtf8(text, c);
  return text;
}

std::string ClassText(const CodePoints& characters) {
  const auto ranges = characters.ranges();
  if (ranges.empty()) return std::string(kNothing);
  const bool one = ranges.size() == 1 && ranges[0].first == ranges[0].last;
  if (one && !IsControl(ranges[0].first)) {
    std::string text = Literal(ranges[0].first);
    return text == kGrammarSign ? std::string(kNothing) : text;
  }
  // XGrammar joins a control character with a digit behind it, so control characters come last. It
  // takes ^ at the start for a negation, so ^ comes behind the others.
  std::string text;
  std::string controls;
  bool caret = false;
  for (auto [first, last] : ranges) {
    if (first == '^') {
      caret = true;
      if (first++ == last) continue;
    }
    if (IsControl(first) && !IsControl(last)) {
      controls += InClass(first) + "-\\x1f";
      first = 0x20;
    }
    std::string& to = IsControl(first) ? controls : text;
    to += InClass(first);
    if (first != last) to += '-' + InClass(last);
  }
  if (caret && text.empty()) return fmt::format("(\\^|[{}])", controls);
  return fmt::format("[{}{}{}]", text, caret ? "^" : "", controls);
}

const CodePoints& TagBegin() {
  static const CodePoints set({{'<', '<'}});
  return set;
}

// The characters that stand in a JSON string as they are.
const CodePoints& Unescaped() {
  static const CodePoints set = CodePoints({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement();
  return set;
}

// The escapes of those of `characters` that have one in a JSON string: alternatives without groups,
// which would be rules of their own. The masks of a rule that repeats are computed for that rule.
std::vector<std::string> Escapes(const CodePoints& characters, bool in_call) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr std::string_view kShortLetters = "\"\\bfnrt";
  std::vector<CodePoints::Range> letters;
  std::vector<CodePoints::Range> numbers[2];  // the last digits of 00 to 0f and of 10 to 1f
  for (char32_t c = 0; c <= '\\'; ++c) {
    if (!characters.Has(c)) continue;
    const size_t at = kShort.find(static_cast<char>(c));
    if (at != std::string_view::npos) {
      const auto letter = static_cast<char32_t>(kShortLetters[at]);
      letters.push_back({letter, letter});
    } else if (IsControl(c)) {
      const auto digit = static_cast<char32_t>("0123456789abcdef"[c % 16]);
      numbers[c / 16].push_back({digit, digit});
    }
  }
  std::vector<std::string> escapes;
  if (!letters.empty()) escapes.push_back("\\\\" + ClassText(CodePoints(letters)));
  for (int high = 0; high < 2; ++high) {
    if (numbers[high].empty()) continue;
    escapes.push_back(fmt::format("\\\\u00{}{}", high, ClassText(CodePoints(numbers[high]))));
  }
  if (in_call && characters.Has('<')) escapes.emplace_back("\\\\u003c");
  return escapes;
}

class Writer {
 public:
  explicit Writer(RegexPlace place) : place_(place) {}

  std::string Write(const RegexNode& node) {
    std::string text = Part(node);
    if (text.empty()) return std::string(kEmpty);
    // XGrammar makes an automaton of an expression in a JSON string that is ASCII throughout. In it
    // quotation marks and backslashes are left out, and (ab+)? matches b, too. The second
    // alternative allows nothing.
    const auto printable = [](char c) { return c >= 0x20 && c <= 0x7E; };
    if (IsInJson() && std::ranges::all_of(text, printable)) text += fmt::format("|{}", kNothing);
    return text;
  }

 private:
  // May be empty, and may be a choice.
  std::string Part(const RegexNode& node) {
    switch (node.kind) {
      case Kind::kClass:
        return Class(node.characters);
      case Kind::kRepeat:
        return Repeat(node);
      default:
        break;
    }
    std::string text;
    for (size_t i = 0; i < node.parts.size(); ++i) {
      const RegexNode& part = node.parts[i];
      if (node.kind == Kind::kChoice) {
        text += (i == 0 ? "" : "|") + Part(part);
      } else {
        text += part.kind == Kind::kChoice ? Atom(part) : Part(part);
      }
    }
    return text;
  }

  // As one element.
  std::string Atom(const RegexNode& node) {
    std::string text = Part(node);
    if (node.kind == Kind::kClass) return text;
    return text.empty() ? std::string(kEmpty) : fmt::format("({})", text);
  }

  std::string Class(const CodePoints& characters) {
    if (place_ == RegexPlace::kPlain) return ClassText(characters);
    if (place_ == RegexPlace::kInTags) {
      return ClassText(characters.And(TagBegin().Complement()));
    }
    const auto [plain, escapes] = Divided(characters);
    if (escapes.empty()) return ClassText(plain);
    std::vector<std::string> options = escapes;
    if (!plain.empty()) options.insert(options.begin(), ClassText(plain));
    return fmt::format("({})", fmt::join(options, "|"));
  }

  struct InJson {
    CodePoints plain;
    std::vector<std::string> escapes;
  };
  InJson Divided(const CodePoints& characters) const {
    const bool in_call = place_ == RegexPlace::kInCall;
    InJson divided = {characters.And(Unescaped()), Escapes(characters, in_call)};
    if (in_call) divided.plain = divided.plain.And(TagBegin().Complement());
    return divided;
  }

  bool IsInJson() const { return place_ == RegexPlace::kInJson || place_ == RegexPlace::kInCall; }

  std::string Repeat(const RegexNode& node) {
    const RegexNode& part = node.parts[0];
    if (node.most == 0) return "";
    if (Part(part).empty()) return "";
    if (node.least == 1 && node.most == 1) return Atom(part);
    if (node.most == kNoLimit && part.kind == Kind::kClass && IsInJson()) {
      return Run(part.characters, node.least);
    }
    return Atom(part) + Count(node.least, node.most);
  }

  // A run of characters. Some of them have escapes. The others are a loop, which is a loop of an
  // automaton, and fast.
  std::string Run(const CodePoints& characters, int64_t least) {
    const auto [plain, escapes] = Divided(characters);
    if (plain.empty() || escapes.empty()) return Class(characters) + Count(least, kNoLimit);
    const std::string some = ClassText(plain) + "*";
    const std::string begin = least == 0 ? "" : Class(characters) + Count(least, least);
    return fmt::format("{}{}({}{})*", begin, some, fmt::join(escapes, some + "|"), some);
  }

  static std::string Count(int64_t least, int64_t most) {
    if (most == kNoLimit) {
      return least == 0 ? "*" : least == 1 ? "+" : fmt::format("{{{},}}", least);
    }
    if (least == 0 && most == 1) return "?";
    if (least == most) return least == 1 ? "" : fmt::format("{{{}}}", least);
    return fmt::format("{{{},{}}}", least, most);
  }

  const RegexPlace place_;
};

}  // namespace

std::string RegexText(const RegexNode& node, RegexPlace place) {
  return Writer(place).Write(node);
}

// Classes, groups and counts are the same in both notations. Other characters stand in quotes.
std::string EbnfOfRegex(std::string_view regex) {
  std::string ebnf;
  for (size_t at = 0; at < regex.size();) {
    const size_t begin = at;
    if (regex[at] == '[') {
      while (regex[at] != ']') at += regex[at] == '\\' ? 2 : 1;
      ebnf += regex.substr(begin, ++at - begin);
    } else if (regex[at] == '{') {
      at = regex.find('}', at) + 1;
      ebnf += regex.substr(begin, at - begin);
    } else if (const char c = regex[at];
               std::string_view("()|*+?").find(c) != std::string_view::npos) {
      // An alternative that is empty.
      if ((c == '|' || c == ')') &&
          (begin == 0 || regex[begin - 1] == '(' || regex[begin - 1] == '|')) {
        ebnf += "\"\"";
      }
      ebnf += c;
      ++at;
    } else {
      at += c == '\\' ? 1 : 0;
      const size_t length = DecodeUtf8(regex, at).length;
      ebnf += EbnfText(regex.substr(at, length));
      at += length;
    }
  }
  return ebnf.empty() || regex.ends_with('|') ? ebnf + "\"\"" : ebnf;
}

}  // namespace baton
