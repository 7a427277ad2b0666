#include <algorithm>
#include <optional>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_format.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

// str(input); spends steps by its length.
StatusOr<MarkedText> Text(Interpreter& interpreter, const Value& input) {
  BATON_ASSIGN_OR_RETURN(MarkedText text, ToText(input, interpreter.budget()));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(text.size() / 32));
  return text;
}

StatusOr<Value> Trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("trim", arguments, {"chars"}));
  BATON_ASSIGN_OR_RETURN(const std::string characters, bound.Text(0, ""));
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  const bool spaces = !bound.Has(0) || bound[0].is_none();
  return interpreter.NewString(
      Strip(text, spaces ? std::nullopt : std::optional<std::string_view>(characters), true, true));
}

template <LetterCase kCase>
StatusOr<Value> Case(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  return interpreter.NewString(ChangeCase(text, kCase));
}

StatusOr<Value> Title(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  return interpreter.NewString(TitleWords(text));
}

StatusOr<Value> ReplaceFilter(Interpreter& interpreter,
                              const Value& input,
                              const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("replace", arguments, {"old", "new", "count"}, 2));
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  BATON_ASSIGN_OR_RETURN(const MarkedText from, Text(interpreter, bound[0]));
  BATON_ASSIGN_OR_RETURN(const MarkedText to, Text(interpreter, bound[1]));
  BATON_ASSIGN_OR_RETURN(const int64_t count, bound.Int(2, -1));
  BATON_ASSIGN_OR_RETURN(MarkedText result, Replace(text, from, to, count, interpreter.budget()));
  return interpreter.NewString(std::move(result));
}

StatusOr<Value> String(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_string()) return input;
  BATON_ASSIGN_OR_RETURN(MarkedText text, Text(interpreter, input));
  return interpreter.NewString(std::move(text));
}

StatusOr<Value> Escape(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(MarkedText text, Text(interpreter, input));
  static constexpr std::pair<const char*, const char*> kEscapes[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : kEscapes) {
    BATON_ASSIGN_OR_RETURN(
        text,
        Replace(text, MarkedText(from, true), MarkedText(to, true), -1, interpreter.budget()));
  }
  return interpreter.NewString(std::move(text));
}

StatusOr<Value> Indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("indent", arguments, {"width", "first", "blank"}));
  BATON_ASSIGN_OR_RETURN(MarkedText text, Text(interpreter, input));
  MarkedText margin;
  if (bound.Has(0) && bound[0].is_string()) {
    margin = bound[0].text();
  } else {
    BATON_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 4));
    BATON_ASSIGN_OR_RETURN(margin, Repeat(MarkedText(" ", true), width, interpreter.budget()));
  }
  text.Append("\n", true);  // so that a final new line counts as a line, as in Jinja
  MarkedText out;
  if (bound.Bool(1, false)) out.Append(margin);
  bool first = true;
  BATON_ASSIGN_OR_RETURN(const auto lines, SplitLines(text.text(), false, interpreter.budget()));
  for (const TextSpan& line : lines) {
    if (!first) out.Append("\n", true);
    if (!first && (line.end > line.begin || bound.Bool(2, false))) out.Append(margin);
    first = false;
    out.AppendRange(text, line.begin, line.end);
    BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(margin.size()));
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.memory()));
  }
  return interpreter.NewString(std::move(out));
}

StatusOr<Value> Center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("center", arguments, {"width"}));
  BATON_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 80));
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  const auto missing =
      std::max<int64_t>(0, width - static_cast<int64_t>(CountCodePoints(text.text())));
  const int64_t left = missing / 2 + (missing & width & 1);
  BATON_ASSIGN_OR_RETURN(MarkedText out, Repeat(MarkedText(" ", true), left, interpreter.budget()));
  BATON_ASSIGN_OR_RETURN(const MarkedText right,
                         Repeat(MarkedText(" ", true), missing - left, interpreter.budget()));
  out.Append(text);
  out.Append(right);
  return interpreter.NewString(std::move(out));
}

StatusOr<Value> Format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  if (arguments.named.empty()) {
    const Value values = Value::Tuple(arguments.positional, interpreter.budget());
    return FormatPercent(text, values, interpreter.budget());
  }
  if (!arguments.positional.empty()) {
    return InvalidArgument("format takes positional or named arguments, not both");
  }
  std::vector<DictObject::Entry> entries;
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(interpreter.NewString(name, true), value);
  }
  BATON_ASSIGN_OR_RETURN(const Value values,
                         DictObject::Make(std::move(entries), interpreter.budget()));
  return FormatPercent(text, values, interpreter.budget());
}

StatusOr<Value> Truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  BATON_ASSIGN_OR_RETURN(const int64_t length, bound.Int(0, 255));
  BATON_ASSIGN_OR_RETURN(const std::string end, bound.Text(2, "..."));
  BATON_ASSIGN_OR_RETURN(const int64_t leeway, bound.Int(3, 5));
  const auto end_length = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_length || leeway < 0) {
    return InvalidArgument(
        "truncate to {} characters with a leeway of {}; at least {} and 0 are needed",
        length,
        leeway,
        end_length);
  }
  Budget& budget = interpreter.budget();
  BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(input, budget));
  BATON_RETURN_IF_ERROR(budget.Spend(text.size() / 32));
  const auto size = static_cast<int64_t>(CountCodePoints(text.text()));
  if (size - leeway <= length) return interpreter.NewString(text);
  const SliceRange range = SliceOf(std::nullopt, length - end_length, 1, size);
  BATON_ASSIGN_OR_RETURN(MarkedText cut, SliceText(text, size, range, budget));
  const size_t space = bound.Bool(1, false) ? std::string::npos : cut.text().rfind(' ');
  if (space != std::string::npos) cut = cut.Slice(0, space);
  cut.Append(end, !bound.Has(2) || IsTrusted(bound[2]));
  return interpreter.NewString(std::move(cut));
}

StatusOr<Value> WordCount(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const MarkedText text, Text(interpreter, input));
  int64_t words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text.text(), pos);
    const bool part = c.value == '_' || (UnicodeClasses().Of(c.value) & (kLetter | kNumber));
    if (part && !in_word) ++words;
    in_word = part;
    pos += c.length;
  }
  return Value::Int(words);
}

}  // namespace

Filter FindTextFilter(const std::string& name) {
  static const absl::flat_hash_map<std::string, Filter> table = {
      {"trim", Trim},
      {"upper", Case<LetterCase::kUpper>},
      {"lower", Case<LetterCase::kLower>},
      {"capitalize", Case<LetterCase::kCapitalized>},
      {"title", Title},
      {"replace", ReplaceFilter},
      {"string", String},
      // There is no automatic escaping, so marking text as safe changes nothing.
      {"safe", String},
      {"escape", Escape},
      {"e", Escape},
      {"forceescape", Escape},
      {"indent", Indent},
      {"center", Center},
      {"format", Format},
      {"truncate", Truncate},
      {"wordcount", WordCount}};
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace baton::jinja
