#include "common/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

std::string NormalizeNewLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}
bool IsNamePart(char c) {
  return IsNameStart(c) || IsDigit(c);
}

class Lexer final {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) BATON_RETURN_IF_ERROR(ReadDataAndTag());
    Emit(Token::Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  template <class... Args>
  Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument(
        "template line {}: {}", line_, fmt::format(format, std::forward<Args>(args)...));
  }

  bool At(std::string_view text) const {
    return std::string_view(source_).substr(pos_).starts_with(text);
  }

  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(to),
                                         '\n'));
    pos_ = to;
  }

  void Emit(Token::Kind kind, std::string text = "") {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  void EmitData(std::string_view data) {
    if (!data.empty()) Emit(Token::Kind::kData, std::string(data));
  }

  size_t FindTag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  Status ReadDataAndTag() {
    const size_t tag = FindTag(pos_);
    if (tag == std::string::npos) {
      EmitData(std::string_view(source_).substr(pos_));
      Advance(source_.size());
      return OkStatus();
    }
    EmitData(DataBefore(tag));
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    Advance(tag + (sign == '-' || sign == '+' ? 3 : 2));
    if (kind == '#') return SkipComment();
    if (kind == '%' && NextWordIs("raw")) return ReadRaw();
    return ReadTag(kind == '%');
  }

  // The text up to `tag`, without the end that white-space control removes.
  std::string_view DataBefore(size_t tag) const {
    const std::string_view data = std::string_view(source_).substr(pos_, tag - pos_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') return data.substr(0, StripSpaces(data, false, true).second);
    if (sign == '+' || source_[tag + 1] == '{') return data;
    const size_t line = data.rfind('\n') + 1;  // npos + 1 is 0
    const bool starts_line = line > 0 || pos_ == 0 || source_[pos_ - 1] == '\n';
    const bool blank = data.find_first_not_of(" \t", line) == std::string_view::npos;
    return starts_line && blank ? data.substr(0, line) : data;
  }

  void SkipSpaces() {
    const auto [begin, end] = StripSpaces(std::string_view(source_).substr(pos_), true, false);
    Advance(pos_ + begin);
  }

  // Moves past the closing mark `close` of a tag and applies white-space control. False when the
  // mark is not at the current position.
  bool TakeTagEnd(std::string_view close, bool trim_new_line) {
    if (At("-") && std::string_view(source_).substr(pos_ + 1).starts_with(close)) {
      Advance(pos_ + 1 + close.size());
      SkipSpaces();
      return true;
    }
    if (trim_new_line && At("+") && std::string_view(source_).substr(pos_ + 1).starts_with(close)) {
      Advance(pos_ + 1 + close.size());
      return true;
    }
    if (!At(close)) return false;
    Advance(pos_ + close.size());
    if (trim_new_line && At("\n")) Advance(pos_ + 1);
    return true;
  }

  Status SkipComment() {
    const size_t close = source_.find("#}", pos_);
    if (close == std::string::npos) return Error("a comment is not closed with '#}}'");
    const bool sign = close > pos_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
    Advance(close - (sign ? 1 : 0));
    TakeTagEnd("#}", true);
    return OkStatus();
  }

  bool NextWordIs(std::string_view word) const {
    const std::string_view rest = std::string_view(source_).substr(pos_);
    const std::string_view trimmed = rest.substr(StripSpaces(rest, true, false).first);
    return trimmed.starts_with(word) &&
           (trimmed.size() == word.size() || !IsNamePart(trimmed[word.size()]));
  }

  Status ReadRaw() {
    SkipSpaces();
    Advance(pos_ + 3);
    SkipSpaces();
    if (!TakeTagEnd("%}", false)) return Error("'raw' takes no arguments");
    for (size_t tag = FindTag(pos_); tag != std::string::npos; tag = FindTag(tag + 1)) {
      if (source_[tag + 1] != '%') continue;
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const std::string_view data = DataBefore(tag);
      const size_t start = pos_;
      pos_ = tag + (sign == '-' || sign == '+' ? 3 : 2);
      const bool ends = NextWordIs("endraw");
      pos_ = start;
      if (!ends) continue;
      EmitData(data);
      Advance(source_.find("endraw", tag) + 6);
      SkipSpaces();
      return TakeTagEnd("%}", true) ? OkStatus() : Error("'endraw' takes no arguments");
    }
    return Error("a raw block is not closed with 'endraw'");
  }

  Status ReadTag(bool block) {
    Emit(block ? Token::Kind::kBlockBegin : Token::Kind::kPrintBegin);
    std::string open;  // brackets that are still open
    while (true) {
      SkipSpaces();
      if (pos_ >= source_.size()) return Error("a tag is not closed");
      if (open.empty() && TakeTagEnd(block ? "%}" : "}}", block)) break;
      BATON_RETURN_IF_ERROR(ReadToken(open));
    }
    Emit(block ? Token::Kind::kBlockEnd : Token::Kind::kPrintEnd);
    return OkStatus();
  }

  Status ReadToken(std::string& open) {
    const char c = source_[pos_];
    if (IsNameStart(c)) {
      size_t end = pos_;
      while (end < source_.size() && IsNamePart(source_[end])) ++end;
      Emit(Token::Kind::kName, source_.substr(pos_, end - pos_));
      Advance(end);
      return OkStatus();
    }
    if (IsDigit(c)) return ReadNumber();
    if (c == '"' || c == '\'') return ReadString();
    return ReadOperator(open);
  }

  // The end of digits with single underscores between them.
  size_t SkipDigits(size_t pos) const {
    while (pos < source_.size() &&
           (IsDigit(source_[pos]) ||
            (source_[pos] == '_' && pos + 1 < source_.size() && IsDigit(source_[pos + 1])))) {
      ++pos;
    }
    return pos;
  }

  bool DigitAt(size_t pos) const { return pos < source_.size() && IsDigit(source_[pos]); }

  Status ReadNumber() {
    size_t end = SkipDigits(pos_);
    bool is_float = false;
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';  // an index, as in `list.0.name`
    if (!after_dot && end < source_.size() && source_[end] == '.' && DigitAt(end + 1)) {
      is_float = true;
      end = SkipDigits(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (DigitAt(end + 1 + sign)) {
        is_float = true;
        end = SkipDigits(end + 1 + sign);
      }
    }
    std::string digits = source_.substr(pos_, end - pos_);
    std::erase(digits, '_');
    Token token{.kind = is_float ? Token::Kind::kFloat : Token::Kind::kInteger,
                .text = digits,
                .line = line_};
    const char* last = digits.data() + digits.size();
    const auto result = is_float ? std::from_chars(digits.data(), last, token.number)
                                 : std::from_chars(digits.data(), last, token.integer);
    if (result.ec != std::errc()) return Error("the number {} is out of range", digits);
    tokens_.push_back(std::move(token));
    Advance(end);
    return OkStatus();
  }

  Status ReadString() {
    const char quote = source_[pos_];
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("a string is not closed with {}", quote);
    BATON_ASSIGN_OR_RETURN(std::string text,
                           Unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1)));
    Emit(Token::Kind::kString, std::move(text));
    Advance(end + 1);
    return OkStatus();
  }

  // Resolves Python's string escapes; unknown ones stay as written.
  StatusOr<std::string> Unescape(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out.push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];
      static constexpr std::string_view kNames = "ntr\\'\"abfv";
      static constexpr std::string_view kValues = "\n\t\r\\'\"\a\b\f\v";
      if (const size_t at = kNames.find(c); at != std::string_view::npos) {
        out.push_back(kValues[at]);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        BATON_RETURN_IF_ERROR(AppendCoded(raw.substr(i + 1, digits), digits, 16, out));
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < raw.size() && raw[i + digits] >= '0' &&
               raw[i + digits] <= '7')
          ++digits;
        BATON_RETURN_IF_ERROR(AppendCoded(raw.substr(i, digits), digits, 8, out));
        i += digits - 1;
      } else if (c != '\n') {
        out.append({'\\', c});
      }
    }
    return out;
  }

  Status AppendCoded(std::string_view digits, size_t expected, int base, std::string& out) const {
    uint32_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (digits.size() != expected || result.ptr != digits.data() + digits.size() ||
        value > 0x10FFFF) {
      return Error("'{}' is not a character's code in a string", digits);
    }
    const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    AppendUtf8(out, surrogate ? kReplacementCharacter : static_cast<char32_t>(value));
    return OkStatus();
  }

  Status ReadOperator(std::string& open) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      BATON_RETURN_IF_ERROR(TrackBracket(op[0], open));
      Emit(Token::Kind::kOperator, std::string(op));
      Advance(pos_ + op.size());
      return OkStatus();
    }
    return Error("unexpected character '{}'", source_[pos_]);
  }

  Status TrackBracket(char c, std::string& open) const {
    static constexpr std::string_view kOpening = "([{";
    static constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(c) != std::string_view::npos) open.push_back(c);
    const size_t closing = kClosing.find(c);
    if (closing == std::string_view::npos) return OkStatus();
    if (open.empty() || open.back() != kOpening[closing]) return Error("'{}' closes nothing", c);
    open.pop_back();
    return OkStatus();
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewLines(ReplaceInvalidUtf8(source))).Run();
}

}  // namespace baton::jinja
