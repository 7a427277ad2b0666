#include "common/text/jinja/string_methods.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/unicode_class.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

Value ListOfTexts(Interpreter& interpreter, std::vector<MarkedText> texts) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (MarkedText& text : texts) items.push_back(interpreter.NewString(std::move(text)));
  return Value::List(std::move(items), interpreter.budget());
}

template <bool kFromRight>
StatusOr<Value> SplitMethod(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("split", arguments, {"sep", "maxsplit"}));
  BATON_ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  BATON_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(1, -1));
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const bool by_space = !bound.Has(0) || bound[0].is_none();
  BATON_ASSIGN_OR_RETURN(auto parts,
                         Split(self.text(),
                               by_space ? std::nullopt : std::optional<std::string_view>(separator),
                               limit,
                               kFromRight));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(parts.size()));
  return ListOfTexts(interpreter, std::move(parts));
}

StatusOr<Value> SplitLinesMethod(Interpreter& interpreter,
                                 const Value& self,
                                 const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("splitlines", arguments, {"keepends"}));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(self.text().size() / 16));
  return ListOfTexts(interpreter, SplitLines(self.text(), bound.Bool(0, false)));
}

template <bool kLeft, bool kRight>
StatusOr<Value> StripMethod(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("strip", arguments, {"chars"}));
  BATON_ASSIGN_OR_RETURN(const std::string characters, bound.Text(0, ""));
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
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
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind(kStart ? "startswith" : "endswith", arguments, {"prefix"}, 1));
  const auto matches = [&self](const Value& part) {
    return part.is_string() &&
           (kStart ? self.str().starts_with(part.str()) : self.str().ends_with(part.str()));
  };
  if (bound[0].is_string()) return Value::Bool(matches(bound[0]));
  if (!bound[0].is_tuple()) {
    return InvalidArgument("startswith() and endswith() need a string or a tuple, not a {}",
                           bound[0].type_name());
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

template <bool kFromRight, bool kMustExist>
StatusOr<Value> FindMethodOf(Interpreter& interpreter,
                             const Value& self,
                             const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("find", arguments, {"sub"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string part, bound.Text(0, ""));
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const size_t at = kFromRight ? self.str().rfind(part) : self.str().find(part);
  if (at != std::string::npos) {
    return Value::Int(
        static_cast<int64_t>(CountCodePoints(std::string_view(self.str()).substr(0, at))));
  }
  if (kMustExist) return InvalidArgument("index(): the string does not hold '{}'", part);
  return Value::Int(-1);
}

StatusOr<Value> CountMethod(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("count", arguments, {"sub"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string part, bound.Text(0, ""));
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  if (part.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(self.str()) + 1));
  int64_t count = 0;
  for (size_t at = self.str().find(part); at != std::string::npos;
       at = self.str().find(part, at + part.size())) {
    ++count;
  }
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
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.size()));
  }
  return interpreter.NewString(std::move(out));
}

template <bool kPrefix>
StatusOr<Value> RemoveAffix(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("removeprefix", arguments, {"affix"}, 1));
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
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("partition", arguments, {"sep"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  if (separator.empty()) return InvalidArgument("partition() needs a separator that is not empty");
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const size_t at = kFromRight ? self.str().rfind(separator) : self.str().find(separator);
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

// True when the string has characters and `kind` holds for all.
template <bool (*kKind)(char32_t)>
StatusOr<Value> AllCharacters(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const std::string& text = self.str();
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    if (!kKind(c.value)) return Value::Bool(false);
    pos += c.length;
  }
  return Value::Bool(!text.empty());
}

bool IsDecimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
bool IsAlpha(char32_t c) {
  return UnicodeClasses().Of(c) & kLetter;
}
bool IsAlnum(char32_t c) {
  return UnicodeClasses().Of(c) & (kLetter | kNumber);
}

// True when the string has letters with case, all of one.
template <bool kUpper>
StatusOr<Value> IsCase(Interpreter& interpreter, const Value& self, const Arguments&) {
  BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(self.text().size()));
  const std::string other =
      ChangeCase(self.text(), kUpper ? LetterCase::kLower : LetterCase::kUpper).text();
  const std::string same =
      ChangeCase(self.text(), kUpper ? LetterCase::kUpper : LetterCase::kLower).text();
  return Value::Bool(same == self.str() && other != self.str());
}

template <bool kLeft, bool kRight>
StatusOr<Value> Pad(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("ljust", arguments, {"width", "fillchar"}, 1));
  BATON_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  BATON_ASSIGN_OR_RETURN(const std::string fill, bound.Text(1, " "));
  const auto missing = width - static_cast<int64_t>(CountCodePoints(self.str()));
  if (missing <= 0) return self;
  // CPython puts the odd space of a centred string to the left when the width is odd.
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

// str.format with {}, {0} and {name}; no attributes, conversions or widths.
StatusOr<Value> Format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const std::string& format = self.str();
  MarkedText out;
  size_t next = 0;
  for (size_t pos = 0; pos < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", pos), format.size());
    out.AppendRange(self.text(), pos, brace);
    if (brace == format.size()) break;
    if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
      out.AppendRange(self.text(), brace, brace + 1);
      pos = brace + 2;
      continue;
    }
    const size_t close = format.find('}', brace);
    if (format[brace] == '}' || close == std::string::npos)
      return InvalidArgument("format(): a brace stands alone");
    const std::string field = format.substr(brace + 1, close - brace - 1);
    const bool number =
        field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6;
    const Value* value = nullptr;
    if (number) {
      const size_t index = field.empty() ? next++ : std::stoul(field);
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    }
    for (const auto& [name, named] : arguments.named) {
      if (!number && name == field) value = &named;
    }
    if (value == nullptr)
      return InvalidArgument("format(): there is no argument for '{{{}}}'", field);
    BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(*value, interpreter.budget()));
    out.Append(text);
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.size()));
    pos = close + 1;
  }
  return interpreter.NewString(std::move(out));
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
      {"isdigit", AllCharacters<IsDecimal>},
      {"isdecimal", AllCharacters<IsDecimal>},
      {"isnumeric", AllCharacters<IsDecimal>},
      {"isalpha", AllCharacters<IsAlpha>},
      {"isalnum", AllCharacters<IsAlnum>},
      {"isspace", AllCharacters<IsPythonSpace>},
      {"isupper", IsCase<true>},
      {"islower", IsCase<false>},
      {"ljust", Pad<false, true>},
      {"rjust", Pad<true, false>},
      {"center", Pad<true, true>},
      {"zfill", ZFill},
      {"format", Format}};
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace baton::jinja
