#include <algorithm>
#include <charconv>
#include <optional>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/split_regex.h"
#include "common/text/utf8.h"

// Filters for HTML and URLs. A result is untrusted when any of the input is.

namespace baton::jinja {
namespace {

// str(value); spends steps by its length.
StatusOr<MarkedText> Text(Interpreter& interpreter, const Value& value) {
  BATON_ASSIGN_OR_RETURN(MarkedText text, ToText(value, interpreter.budget()));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(text.size() / 8));
  BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(8 * text.size()));
  return text;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// urllib.parse.quote. In a query, "/" is quoted, too, and a space becomes a plus.
std::string Quoted(std::string_view text, bool in_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
    }
  }
  return out;
}

StatusOr<Value> UrlEncode(Interpreter& interpreter,
                          const Value& input,
                          const Arguments& arguments) {
  BATON_RETURN_IF_ERROR(BoundArguments::Bind("urlencode", arguments, {}).status());
  if (!input.is_dict() && !input.is_sequence()) {
    BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
    return interpreter.NewString(Quoted(text.text(), false), text.trusted());
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (input.is_dict()) pairs = input.dict().entries;
  if (input.is_sequence()) {
    for (const Value& item : input.items()) {
      if (!item.is_sequence() || item.items().size() != 2) {
        return InvalidArgument("urlencode needs pairs of key and value");
      }
      pairs.emplace_back(item.items()[0], item.items()[1]);
    }
  }
  std::string out;
  for (const auto& [key, value] : pairs) {
    BATON_ASSIGN_OR_RETURN(const MarkedText name, Text(interpreter, key));
    BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, value));
    out.append(out.empty() ? "" : "&").append(Quoted(name.text(), true)).append("=");
    out += Quoted(text.text(), true);
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.capacity()));
  }
  return interpreter.NewString(std::move(out), IsTrusted(input));
}

StatusOr<Value> XmlAttributes(Interpreter& interpreter,
                              const Value& input,
                              const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("xmlattr", arguments, {"autospace"}));
  if (!input.is_dict()) return InvalidArgument("xmlattr needs a dict, not a {}", input.type_name());
  std::string out;
  for (const auto& [key, value] : input.dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) return InvalidArgument("xmlattr needs names that are strings");
    if (key.str().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return InvalidArgument("'{}' cannot be the name of an attribute", key.str().substr(0, 100));
    }
    BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, value));
    if (!out.empty() || bound.Bool(0, true)) out += ' ';
    out += fmt::format("{}=\"{}\"", EscapeHtml(key.str()), EscapeHtml(text.text()));
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.capacity()));
  }
  return interpreter.NewString(std::move(out), IsTrusted(input));
}

// The character that "&name;" or "&#number;" at `pos` stands for, and the end of this entity;
// nothing for other text. Only the most common names are supported.
std::optional<std::pair<char32_t, size_t>> Entity(std::string_view text, size_t pos) {
  static constexpr std::pair<std::string_view, char32_t> kNames[] = {
      {"amp", '&'},       {"lt", '<'},       {"gt", '>'},       {"quot", '"'},
      {"apos", '\''},     {"nbsp", 0xA0},    {"copy", 0xA9},    {"reg", 0xAE},
      {"laquo", 0xAB},    {"raquo", 0xBB},   {"ndash", 0x2013}, {"mdash", 0x2014},
      {"hellip", 0x2026}, {"lsquo", 0x2018}, {"rsquo", 0x2019}, {"ldquo", 0x201C},
      {"rdquo", 0x201D},  {"euro", 0x20AC},  {"bull", 0x2022},  {"middot", 0xB7}};
  constexpr size_t kLongest = 12;
  const size_t end = text.substr(0, pos + kLongest).find(';', pos);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view name = text.substr(pos + 1, end - pos - 1);
  for (const auto& [known, value] : kNames) {
    if (known == name) return std::pair(value, end + 1);
  }
  if (!name.starts_with('#')) return std::nullopt;
  const bool hex = name.size() > 1 && (name[1] == 'x' || name[1] == 'X');
  const std::string_view digits = name.substr(hex ? 2 : 1);
  uint32_t value = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  const bool number = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  if (!number) return std::nullopt;
  const bool character = value > 0 && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  return std::pair(character ? static_cast<char32_t>(value) : kReplacementCharacter, end + 1);
}

StatusOr<Value> StripTags(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const MarkedText marked, Text(interpreter, input));
  const std::string_view text = marked.text();
  std::string plain;
  size_t pos = 0;
  for (size_t start = text.find('<'); start != std::string_view::npos;
       start = text.find('<', pos)) {
    const bool comment = text.substr(start).starts_with("<!--");
    const size_t end = comment ? FindText(text, "-->", start + 4) : text.find('>', start);
    if (end == std::string_view::npos) break;
    plain += text.substr(pos, start - pos);
    pos = end + (comment ? 3 : 1);
  }
  plain += text.substr(pos);
  std::string out;
  BATON_ASSIGN_OR_RETURN(const auto words,
                         Split(plain, std::nullopt, -1, false, interpreter.budget()));
  for (const TextSpan& word : words) {
    if (!out.empty()) out += ' ';
    for (size_t at = word.begin; at < word.end;) {
      const auto entity = plain[at] == '&' ? Entity(plain, at) : std::nullopt;
      if (entity) AppendUtf8(out, entity->first);
      if (!entity) out += plain[at];
      at = entity ? entity->second : at + 1;
    }
  }
  return interpreter.NewString(std::move(out), marked.trusted());
}

// jinja2's patterns for URLs and for mail addresses.
const SplitRegex& UrlPattern() {
  static const auto* regex = new SplitRegex(*SplitRegex::Compile(
      R"re((?i)((https?://|www\.)(([\w%-]+\.)+)?([a-z]{2,63}|xn--[\w%]{2,59})|([\w%-]{2,63}\.)+)re"
      R"re((com|net|int|edu|gov|org|info|mil)|(https?://)((([\d]{1,3})(\.[\d]{1,3}){3})|)re"
      R"re((\[([\da-f]{0,4}:){2}([\da-f]{0,4}:?){1,6}\])))(?::[\d]{1,5})?(?:[/?#]\S*)?)re"));
  return *regex;
}
const SplitRegex& MailPattern() {
  static const auto* regex = new SplitRegex(*SplitRegex::Compile(R"re(\S+@\w[\w.-]*\.\w+)re"));
  return *regex;
}

struct LinkStyle {
  std::optional<int64_t> most;  // the most characters of a URL that are shown
  std::string attributes;
  std::vector<std::string> schemes;
};

std::string Link(const std::string& url, const std::string& shown, const LinkStyle& style) {
  return fmt::format("<a href=\"{}\"{}>{}</a>", url, style.attributes, shown);
}

std::string Trimmed(const std::string& url, const LinkStyle& style) {
  if (!style.most || static_cast<int64_t>(CountCodePoints(url)) <= *style.most) return url;
  size_t end = 0;
  for (int64_t i = 0; i < *style.most; ++i) end += DecodeUtf8(url, end).length;
  return url.substr(0, end) + "...";
}

int64_t Count(std::string_view text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// Moves brackets and punctuation around a word, which do not belong to a link, to `head` and
// `tail`.
void CutEnds(std::string& head, std::string& middle, std::string& tail) {
  static constexpr std::string_view kOpening[] = {"(", "<", "&lt;"};
  static constexpr std::string_view kClosing[] = {")", ">", ".", ",", "\n", "&gt;"};
  size_t begin = 0;
  size_t end = middle.size();
  const auto cut = [&](auto matches, const auto& marks) {
    return std::any_of(std::begin(marks), std::end(marks), matches);
  };
  while (cut(
      [&](std::string_view mark) {
        const bool found = std::string_view(middle).substr(begin).starts_with(mark);
        begin += found ? mark.size() : 0;
        return found;
      },
      kOpening)) {
  }
  while (cut(
      [&](std::string_view mark) {
        const bool found = std::string_view(middle).substr(begin, end - begin).ends_with(mark);
        end -= found ? mark.size() : 0;
        return found;
      },
      kClosing)) {
  }
  head = middle.substr(0, begin);
  tail = middle.substr(end);
  middle = middle.substr(begin, end - begin);
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  for (const auto& [open, close] : kPairs) {
    const int64_t opened = Count(middle, open);
    if (opened <= Count(middle, close)) continue;
    const int64_t moved = std::min(opened, Count(tail, close));
    size_t after = 0;
    for (int64_t i = 0; i < moved; ++i) after = tail.find(close, after) + close.size();
    middle += tail.substr(0, after);
    tail.erase(0, after);
  }
}

std::string Linked(std::string middle, const LinkStyle& style) {
  std::string head;
  std::string tail;
  CutEnds(head, middle, tail);
  constexpr std::string_view kMail = "mailto:";
  const auto is_mail = [](std::string_view text) { return MailPattern().Matches(text); };
  if (UrlPattern().Matches(middle)) {
    const bool whole = middle.starts_with("https://") || middle.starts_with("http://");
    middle = Link(whole ? middle : "https://" + middle, Trimmed(middle, style), style);
  } else if (middle.starts_with(kMail) && is_mail(middle.substr(kMail.size()))) {
    middle = fmt::format("<a href=\"{}\">{}</a>", middle, middle.substr(kMail.size()));
  } else if (middle.find('@') != std::string::npos && !middle.starts_with("www.") &&
             !middle.starts_with('@') && middle.find(':') == std::string::npos && is_mail(middle)) {
    middle = fmt::format("<a href=\"mailto:{}\">{}</a>", middle, middle);
  } else {
    for (const std::string& scheme : style.schemes) {
      if (middle != scheme && middle.starts_with(scheme)) middle = Link(middle, middle, style);
    }
  }
  return head + middle + tail;
}

StatusOr<LinkStyle> ReadLinkStyle(Interpreter& interpreter, const BoundArguments& bound) {
  LinkStyle style;
  if (bound.Has(0) && !bound[0].is_none()) {
    BATON_ASSIGN_OR_RETURN(style.most, bound.Int(0, 0));
    style.most = std::max<int64_t>(0, *style.most);
  }
  BATON_ASSIGN_OR_RETURN(const std::string target, bound.Text(2, ""));
  BATON_ASSIGN_OR_RETURN(const std::string rel, bound.Text(3, ""));
  std::vector<std::string> words = {"noopener"};
  if (bound.Bool(1, false)) words.emplace_back("nofollow");
  BATON_ASSIGN_OR_RETURN(const auto given,
                         Split(rel, std::nullopt, -1, false, interpreter.budget()));
  for (const TextSpan& word : given) words.push_back(rel.substr(word.begin, word.end - word.begin));
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  style.attributes =
      fmt::format(" rel=\"{}\"", EscapeHtml(fmt::format("{}", fmt::join(words, " "))));
  if (!target.empty()) style.attributes += fmt::format(" target=\"{}\"", EscapeHtml(target));
  if (bound.Has(4) && !bound[4].is_none()) {
    BATON_ASSIGN_OR_RETURN(const std::vector<Value> schemes, interpreter.Iterate(bound[4]));
    for (const Value& scheme : schemes) {
      if (!scheme.is_string() || scheme.str().find(':') == std::string::npos) {
        return InvalidArgument("urlize: extra_schemes needs strings such as 'tel:'");
      }
      style.schemes.push_back(scheme.str());
    }
  }
  return style;
}

StatusOr<Value> Urlize(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind(
          "urlize", arguments, {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"}));
  BATON_ASSIGN_OR_RETURN(const LinkStyle style, ReadLinkStyle(interpreter, bound));
  BATON_ASSIGN_OR_RETURN(const MarkedText marked, Text(interpreter, input));
  const std::string text = EscapeHtml(marked.text());
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(text.size()));
  std::string out;
  size_t done = 0;
  BATON_ASSIGN_OR_RETURN(const auto words,
                         Split(text, std::nullopt, -1, false, interpreter.budget()));
  for (const TextSpan& word : words) {
    out.append(text, done, word.begin - done);
    out += Linked(text.substr(word.begin, word.end - word.begin), style);
    done = word.end;
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.capacity()));
  }
  out.append(text, done, text.size() - done);
  return interpreter.NewString(std::move(out), marked.trusted());
}

}  // namespace

Filter FindMarkupFilter(const std::string& name) {
  static const absl::flat_hash_map<std::string, Filter> table = {{"striptags", StripTags},
                                                                 {"urlencode", UrlEncode},
                                                                 {"urlize", Urlize},
                                                                 {"xmlattr", XmlAttributes}};
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace baton::jinja
