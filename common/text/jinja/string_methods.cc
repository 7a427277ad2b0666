#include "common/text/jinja/string_methods.h"

#include <algorithm>
#include <optional>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_format.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

StatusOr<Value> ListOfTexts(Interpreter& interpreter,
                            const MarkedText& text,
                            const std::vector<TextSpan>& spans) {
  BATON_RETURN_IF_ERROR(
      interpreter.budget().CheckRoom(text.size() + spans.size() * kShortStringBytes));
  std::vector<Value> items;
  items.reserve(spans.size());
  for (const TextSpan& span : spans) {
    items.push_back(interpreter.NewString(text.Slice(span.begin, span.end)));
  }
  return Value::List(std::move(items), interpreter.budget());
}

template <bool kFromRight>
StatusOr<Value> SplitMethod(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  constexpr const char* kName = kFromRight ? "rsplit" : "split";
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind(kName, arguments, {"sep", "maxsplit"}));
  BATON_ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  BATON_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(1, -1));
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const bool by_space = !bound.Has(0) || bound[0].is_none();
  if (!by_space && separator.empty()) {
    return InvalidArgument("{}() needs a separator that is not empty", kName);
  }
  BATON_ASSIGN_OR_RETURN(const auto parts,
                         Split(self.str(),
                               by_space ? std::nullopt : std::optional<std::string_view>(separator),
                               limit,
                               kFromRight,
                               interpreter.budget()));
  return ListOfTexts(interpreter, self.text(), parts);
}

StatusOr<Value> SplitLinesMethod(Interpreter& interpreter,
                                 const Value& self,
                                 const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("splitlines", arguments, {"keepends"}));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 16));
  BATON_ASSIGN_OR_RETURN(const auto lines,
                         SplitLines(self.str(), bound.Bool(0, false), interpreter.budget()));
  return ListOfTexts(interpreter, self.text(), lines);
}

template <bool kLeft, bool kRight>
StatusOr<Value> StripMethod(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  constexpr const char* kName = !kRight ? "lstrip" : kLeft ? "strip" : "rstrip";
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind(kName, arguments, {"chars"}));
  BATON_ASSIGN_OR_RETURN(const std::string characters, bound.Text(0, ""));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 16));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(characters.size() / 4));
  const bool spaces = !bound.Has(0) || bound[0].is_none();
  return interpreter.NewString(
      Strip(self.text(),
            spaces ? std::nullopt : std::optional<std::string_view>(characters),
            kLeft,
            kRight));
}

template <LetterCase kCase>
StatusOr<Value> CaseMethod(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 16));
  return interpreter.NewString(ChangeCase(self.text(), kCase));
}

template <bool kStart>
StatusOr<Value> StartsOrEndsWith(Interpreter&, const Value& self, const Arguments& arguments) {
  constexpr const char* kName = kStart ? "startswith" : "endswith";
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind(kName, arguments, {kStart ? "prefix" : "suffix"}, 1));
  const auto matches = [&self](const Value& part) {
    return part.is_string() &&
           (kStart ? self.str().starts_with(part.str()) : self.str().ends_with(part.str()));
  };
  if (bound[0].is_string()) return Value::Bool(matches(bound[0]));
  if (!bound[0].is_tuple()) {
    return InvalidArgument("{}() needs a string or a tuple, not a {}", kName, bound[0].type_name());
  }
  const auto& parts = bound[0].items();
  return Value::Bool(std::any_of(parts.begin(), parts.end(), matches));
}

StatusOr<Value> ReplaceMethod(Interpreter& interpreter,
                              const Value& self,
                              const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("replace", arguments, {"old", "new", "count"}, 2));
  if (!bound[0].is_string() || !bound[1].is_string())
    return InvalidArgument("replace() needs two strings");
  BATON_ASSIGN_OR_RETURN(const int64_t count, bound.Int(2, -1));
  BATON_ASSIGN_OR_RETURN(
      MarkedText text,
      Replace(self.text(), bound[0].text(), bound[1].text(), count, interpreter.budget()));
  return interpreter.NewString(std::move(text));
}

// The number of bytes of the first `count` characters.
size_t PrefixBytes(std::string_view text, int64_t count) {
  size_t pos = 0;
  for (int64_t i = 0; i < count && pos < text.size(); ++i) pos += DecodeUtf8(text, pos).length;
  return pos;
}

// The characters [start, end) of a string, where start and end are the arguments 1 and 2.
struct Window {
  std::string_view text;
  int64_t start = 0;
  bool exists = true;  // false when start is after end; then nothing can be found
};

StatusOr<Window> WindowOf(Interpreter& interpreter,
                          const Value& self,
                          const BoundArguments& bound) {
  const std::string_view all = self.str();
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(all.size()));
  if (!bound.Has(1) && !bound.Has(2)) return Window{.text = all};
  const auto size = static_cast<int64_t>(CountCodePoints(all));
  BATON_ASSIGN_OR_RETURN(int64_t start, bound.Int(1, 0));
  BATON_ASSIGN_OR_RETURN(int64_t end, bound.Int(2, size));
  start = start < 0 ? std::max<int64_t>(0, start + size) : start;
  end = end < 0 ? std::max<int64_t>(0, end + size) : std::min(end, size);
  if (start > end) return Window{.text = {}, .start = start, .exists = false};
  const size_t begin = PrefixBytes(all, start);
  return Window{.text = all.substr(begin, PrefixBytes(all.substr(begin), end - start)),
                .start = start};
}

template <bool kFromRight, bool kMustExist>
StatusOr<Value> FindMethodOf(Interpreter& interpreter,
                             const Value& self,
                             const Arguments& arguments) {
  constexpr const char* kName =
      kMustExist ? (kFromRight ? "rindex" : "index") : (kFromRight ? "rfind" : "find");
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind(kName, arguments, {"sub", "start", "end"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string part, bound.Text(0, ""));
  BATON_ASSIGN_OR_RETURN(const Window window, WindowOf(interpreter, self, bound));
  const size_t at = kFromRight ? FindLastText(window.text, part) : FindText(window.text, part, 0);
  if (window.exists && at != std::string_view::npos) {
    return Value::Int(window.start +
                      static_cast<int64_t>(CountCodePoints(window.text.substr(0, at))));
  }
  if (kMustExist) {
    return InvalidArgument("{}(): the string does not hold '{}'", kName, part.substr(0, 100));
  }
  return Value::Int(-1);
}

StatusOr<Value> CountMethod(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("count", arguments, {"sub", "start", "end"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string part, bound.Text(0, ""));
  BATON_ASSIGN_OR_RETURN(const Window window, WindowOf(interpreter, self, bound));
  if (!window.exists) return Value::Int(0);
  if (part.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(window.text) + 1));
  int64_t count = 0;
  for (size_t at = FindText(window.text, part, 0); at != std::string_view::npos;
       at = FindText(window.text, part, at + part.size())) {
    ++count;
  }
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(static_cast<uint64_t>(count) / 8));
  return Value::Int(count);
}

StatusOr<Value> JoinMethod(Interpreter& interpreter,
                           const Value& self,
                           const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("join", arguments, {"iterable"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.Iterate(bound[0]));
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      return InvalidArgument("join() needs strings, found a {}", items[i].type_name());
    if (i > 0) out.Append(self.text());
    out.Append(items[i].text());
    BATON_RETURN_IF_ERROR(
        interpreter.budget().SpendOnBytes(self.text().size() + items[i].text().size()));
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.memory()));
  }
  return interpreter.NewString(std::move(out));
}

template <bool kPrefix>
StatusOr<Value> RemoveAffix(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind(kPrefix ? "removeprefix" : "removesuffix",
                                              arguments,
                                              {kPrefix ? "prefix" : "suffix"},
                                              1));
  BATON_ASSIGN_OR_RETURN(const std::string affix, bound.Text(0, ""));
  const size_t size = self.text().size();
  if (kPrefix && self.str().starts_with(affix)) {
    return interpreter.NewString(self.text().Slice(affix.size(), size));
  }
  if (!kPrefix && self.str().ends_with(affix)) {
    return interpreter.NewString(self.text().Slice(0, size - affix.size()));
  }
  return self;
}

template <bool kFromRight>
StatusOr<Value> Partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  constexpr const char* kName = kFromRight ? "rpartition" : "partition";
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind(kName, arguments, {"sep"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  if (separator.empty()) return InvalidArgument("{}() needs a separator that is not empty", kName);
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const size_t at =
      kFromRight ? FindLastText(self.str(), separator) : FindText(self.str(), separator, 0);
  const Value empty = interpreter.NewString("", true);
  if (at == std::string::npos) {
    std::vector<Value> whole = kFromRight ? std::vector<Value>{empty, empty, self}
                                          : std::vector<Value>{self, empty, empty};
    return Value::Tuple(std::move(whole), interpreter.budget());
  }
  const size_t after = at + separator.size();
  return Value::Tuple({interpreter.NewString(self.text().Slice(0, at)),
                       interpreter.NewString(self.text().Slice(at, after)),
                       interpreter.NewString(self.text().Slice(after, self.text().size()))},
                      interpreter.budget());
}

StatusOr<Value> ExpandTabs(Interpreter& interpreter,
                           const Value& self,
                           const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("expandtabs", arguments, {"tabsize"}));
  BATON_ASSIGN_OR_RETURN(int64_t size, bound.Int(0, 8));
  constexpr int64_t kLargest = 4096;
  if (size > kLargest) {
    return InvalidArgument("expandtabs() by {}; it must be at most {}", size, kLargest);
  }
  const MarkedText& text = self.text();
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(text.size() / 16));
  MarkedText out;
  int64_t column = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pos + DecodeUtf8(text.text(), pos).length;
    const char c = text.text()[pos];
    if (c == '\t' && size > 0) {
      const int64_t spaces = size - column % size;
      BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(static_cast<size_t>(spaces)));
      BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.memory()));
      out.Append(std::string(static_cast<size_t>(spaces), ' '), text.trusted());
      column += spaces;
    } else if (c != '\t') {
      out.AppendRange(text, pos, end);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    pos = end;
  }
  return interpreter.NewString(std::move(out));
}

template <bool kLeft, bool kRight>
StatusOr<Value> Pad(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  constexpr const char* kName = kLeft && kRight ? "center" : kLeft ? "rjust" : "ljust";
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind(kName, arguments, {"width", "fillchar"}, 1));
  BATON_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  BATON_ASSIGN_OR_RETURN(const std::string fill, bound.Text(1, " "));
  const auto missing = width - static_cast<int64_t>(CountCodePoints(self.str()));
  if (missing <= 0) return self;
  // When the padding of a centred string is odd, CPython puts the extra character to the left if
  // the width is odd.
  const int64_t left = kLeft && kRight ? missing / 2 + (missing & width & 1) : kLeft ? missing : 0;
  BATON_ASSIGN_OR_RETURN(MarkedText out,
                         Repeat(MarkedText(fill, true), left, interpreter.budget()));
  BATON_ASSIGN_OR_RETURN(const MarkedText right,
                         Repeat(MarkedText(fill, true), missing - left, interpreter.budget()));
  out.Append(self.text());
  out.Append(right);
  return interpreter.NewString(std::move(out));
}

StatusOr<Value> ZFill(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("zfill", arguments, {"width"}, 1));
  BATON_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  const auto missing = width - static_cast<int64_t>(CountCodePoints(self.str()));
  if (missing <= 0) return self;
  const size_t sign = self.str().starts_with('-') || self.str().starts_with('+') ? 1 : 0;
  MarkedText out = self.text().Slice(0, sign);
  BATON_ASSIGN_OR_RETURN(const MarkedText zeros,
                         Repeat(MarkedText("0", true), missing, interpreter.budget()));
  out.Append(zeros);
  out.AppendRange(self.text(), sign, self.text().size());
  return interpreter.NewString(std::move(out));
}

StatusOr<Value> FormatMethod(Interpreter& interpreter,
                             const Value& self,
                             const Arguments& arguments) {
  return FormatBraces(interpreter, "format", self.text(), arguments);
}

StatusOr<Value> FormatMap(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("format_map", arguments, {"mapping"}, 1));
  if (!bound[0].is_dict()) {
    return InvalidArgument("format_map() needs a dict, not a {}", bound[0].type_name());
  }
  Arguments named;
  for (const auto& [key, value] : bound[0].dict().entries) {
    if (key.is_string()) named.named.emplace_back(key.str(), value);
  }
  return FormatBraces(interpreter, "format_map", self.text(), named);
}

}  // namespace

Method FindStringMethod(const std::string& name) {
  static const absl::flat_hash_map<std::string, Method> table = {
      {"split", SplitMethod<false>},
      {"rsplit", SplitMethod<true>},
      {"splitlines", SplitLinesMethod},
      {"strip", StripMethod<true, true>},
      {"lstrip", StripMethod<true, false>},
      {"rstrip", StripMethod<false, true>},
      {"upper", CaseMethod<LetterCase::kUpper>},
      {"lower", CaseMethod<LetterCase::kLower>},
      {"casefold", CaseMethod<LetterCase::kLower>},
      {"title", CaseMethod<LetterCase::kTitle>},
      {"capitalize", CaseMethod<LetterCase::kCapitalized>},
      {"swapcase", CaseMethod<LetterCase::kSwapped>},
      {"startswith", StartsOrEndsWith<true>},
      {"endswith", StartsOrEndsWith<false>},
      {"replace", ReplaceMethod},
      {"find", FindMethodOf<false, false>},
      {"rfind", FindMethodOf<true, false>},
      {"index", FindMethodOf<false, true>},
      {"rindex", FindMethodOf<true, true>},
      {"count", CountMethod},
      {"join", JoinMethod},
      {"removeprefix", RemoveAffix<true>},
      {"removesuffix", RemoveAffix<false>},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"ljust", Pad<false, true>},
      {"rjust", Pad<true, false>},
      {"center", Pad<true, true>},
      {"zfill", ZFill},
      {"format", FormatMethod},
      {"format_map", FormatMap},
      {"expandtabs", ExpandTabs}};
  const auto it = table.find(name);
  return it == table.end() ? FindStringPredicate(name) : it->second;
}

}  // namespace baton::jinja
