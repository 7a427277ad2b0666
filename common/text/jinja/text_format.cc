#include "common/text/jinja/text_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

// The repr() `text` with all characters that are not ASCII escaped.
MarkedText AsciiOnly(const MarkedText& text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text.text(), pos);
    if (c.value < 0x80) {
      out.push_back(text.text()[pos]);
    } else {
      out += c.value < 0x100     ? fmt::format("\\x{:02x}", uint32_t{c.value})
             : c.value < 0x10000 ? fmt::format("\\u{:04x}", uint32_t{c.value})
                                 : fmt::format("\\U{:08x}", uint32_t{c.value});
    }
    pos += c.length;
  }
  return MarkedText(std::move(out), text.trusted());
}

// The state of one call of str.format or str.format_map.
class BraceFormatter final {
 public:
  // `function`: the name of the function that was called, for errors.
  BraceFormatter(Interpreter& interpreter, std::string_view function, const Arguments& arguments)
      : interpreter_(interpreter), function_(function), arguments_(arguments) {}

  StatusOr<MarkedText> Format(const MarkedText& format, int nesting) {
    const std::string& all = format.text();
    MarkedText out;
    for (size_t pos = 0; pos < all.size();) {
      const size_t brace = std::min(all.find_first_of("{}", pos), all.size());
      out.AppendRange(format, pos, brace);
      if (brace == all.size()) break;
      if (brace + 1 < all.size() && all[brace + 1] == all[brace]) {
        out.AppendRange(format, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      const size_t close = all[brace] == '}' ? std::string::npos : EndOfField(all, brace);
      if (close == std::string::npos)
        return InvalidArgument("{}(): a brace stands alone", function_);
      BATON_ASSIGN_OR_RETURN(const MarkedText field,
                             Field(format.Slice(brace + 1, close), nesting));
      out.Append(field);
      BATON_RETURN_IF_ERROR(interpreter_.budget().SpendOnBytes(field.size()));
      BATON_RETURN_IF_ERROR(interpreter_.budget().CheckRoom(out.memory()));
      pos = close + 1;
    }
    return out;
  }

 private:
  // The brace that closes the brace at `open`; npos when there is none.
  static size_t EndOfField(std::string_view text, size_t open) {
    int depth = 0;
    for (size_t pos = open; pos < text.size(); ++pos) {
      if (text[pos] == '{') ++depth;
      if (text[pos] == '}' && --depth == 0) return pos;
    }
    return std::string::npos;
  }

  // Formats a field, the text between braces: name, conversion and specification.
  StatusOr<MarkedText> Field(const MarkedText& field, int nesting) {
    constexpr int kMaxNesting = 1;
    const std::string_view all = field.text();
    size_t name_end = 0;  // the first '!' or ':' that is not inside an index
    for (bool inside = false; name_end < all.size(); ++name_end) {
      if (all[name_end] == '[') inside = true;
      if (all[name_end] == ']') inside = false;
      if (!inside && (all[name_end] == '!' || all[name_end] == ':')) break;
    }
    BATON_ASSIGN_OR_RETURN(Value value, Find(all.substr(0, name_end)));
    size_t pos = name_end;
    if (pos < all.size() && all[pos] == '!') {
      const char conversion = pos + 1 < all.size() ? all[pos + 1] : '\0';
      BATON_ASSIGN_OR_RETURN(value, Convert(value, conversion));
      pos += 2;
      if (pos < all.size() && all[pos] != ':') {
        return InvalidArgument(
            "{}(): expected ':' after the conversion '!{}'", function_, conversion);
      }
    }
    if (pos >= all.size()) return ToText(value, interpreter_.budget());
    MarkedText spec = field.Slice(pos + 1, all.size());
    if (spec.text().find('{') != std::string::npos) {
      if (nesting >= kMaxNesting) {
        return InvalidArgument("{}(): braces are nested too deep", function_);
      }
      BATON_ASSIGN_OR_RETURN(spec, Format(spec, nesting + 1));
    }
    return FormatValue(value, spec.text(), interpreter_.budget());
  }

  StatusOr<Value> Convert(const Value& value, char conversion) {
    MarkedText text;
    if (conversion == 's') {
      BATON_ASSIGN_OR_RETURN(text, ToText(value, interpreter_.budget()));
    } else if (conversion == 'r' || conversion == 'a') {
      BATON_ASSIGN_OR_RETURN(text, ToRepr(value, interpreter_.budget()));
      if (conversion == 'a') text = AsciiOnly(text);
    } else {
      return InvalidArgument(
          "{}(): the conversion '!{}' is not known; s, r and a are", function_, conversion);
    }
    return interpreter_.NewString(std::move(text));
  }

  // The value of a field's name: an argument, followed by attributes and indices.
  StatusOr<Value> Find(std::string_view name) {
    size_t pos = std::min(name.find_first_of(".["), name.size());
    BATON_ASSIGN_OR_RETURN(Value value, Argument(name.substr(0, pos)));
    while (pos < name.size()) {
      if (name[pos] == '.') {
        const size_t end = std::min(name.find_first_of(".[", pos + 1), name.size());
        BATON_ASSIGN_OR_RETURN(
            value, interpreter_.Attribute(value, std::string(name.substr(pos + 1, end - pos - 1))));
        pos = end;
        continue;
      }
      const size_t end = name[pos] == '[' ? name.find(']', pos) : std::string_view::npos;
      if (end == std::string_view::npos) {
        return InvalidArgument("{}(): '{}' is not a field", function_, name.substr(0, 40));
      }
      const std::string_view key = name.substr(pos + 1, end - pos - 1);
      const auto index = Number(key);
      BATON_ASSIGN_OR_RETURN(
          value,
          interpreter_.Item(
              value, index ? Value::Int(*index) : interpreter_.NewString(std::string(key), true)));
      pos = end + 1;
    }
    return value;
  }

  StatusOr<Value> Argument(std::string_view name) {
    const auto index = name.empty() ? std::optional<int64_t>(next_++) : Number(name);
    if (index && static_cast<size_t>(*index) < arguments_.positional.size()) {
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [known, value] : arguments_.named) {
      if (!index && known == name) return value;
    }
    return InvalidArgument(
        "{}(): there is no argument for '{{{}}}'", function_, name.substr(0, 40));
  }

  static std::optional<int64_t> Number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool all = error == std::errc() && end == text.data() + text.size() && value >= 0;
    return all ? std::optional(value) : std::nullopt;
  }

  Interpreter& interpreter_;
  const std::string_view function_;
  const Arguments& arguments_;
  int64_t next_ = 0;
};

// The state of one '%' operation.
class PercentFormatter final {
 public:
  PercentFormatter(const MarkedText& format, const Value& values, Budget& budget)
      : format_(format), all_(format.text()), values_(values), budget_(budget) {
    if (values.is_tuple()) items_ = values.items();
    if (!values.is_tuple()) items_.push_back(values);
  }

  StatusOr<Value> Run() {
    MarkedText out;
    bool by_name = false;
    while (pos_ < all_.size()) {
      const size_t percent = std::min(all_.find('%', pos_), all_.size());
      out.AppendRange(format_, pos_, percent);
      if (percent == all_.size()) break;
      pos_ = percent + 1;
      if (pos_ < all_.size() && all_[pos_] == '%') {
        out.Append("%", format_.trusted());
        ++pos_;
        continue;
      }
      by_name = by_name || (pos_ < all_.size() && all_[pos_] == '(');
      BATON_ASSIGN_OR_RETURN(const MarkedText text, Conversion());
      out.Append(text);
      BATON_RETURN_IF_ERROR(budget_.SpendOnBytes(text.size()));
      BATON_RETURN_IF_ERROR(budget_.CheckRoom(out.memory()));
    }
    if (!by_name && used_ < items_.size() && !values_.is_dict()) {
      return InvalidArgument("a format uses {} of {} values", used_, items_.size());
    }
    return Value::String(std::move(out), &budget_);
  }

 private:
  StatusOr<Value> Next() {
    if (used_ >= items_.size()) {
      return InvalidArgument("a format needs more than {} values", items_.size());
    }
    return items_[used_++];
  }

  StatusOr<Value> Named() {
    const size_t close = all_.find(')', pos_);
    if (close == std::string_view::npos) return InvalidArgument("a '%(' is not closed");
    const std::string_view name = all_.substr(pos_ + 1, close - pos_ - 1);
    pos_ = close + 1;
    if (!values_.is_dict()) return InvalidArgument("the format '%({})' needs a dict", name);
    const Value* value = values_.dict().Find(name);
    if (value == nullptr) return InvalidArgument("a format's dict has no key '{}'", name);
    return *value;
  }

  // Reads a number, or takes the next value for '*'.
  StatusOr<int64_t> Number() {
    constexpr int64_t kLargest = int64_t{1} << 40;
    if (pos_ < all_.size() && all_[pos_] == '*') {
      ++pos_;
      BATON_ASSIGN_OR_RETURN(const Value value, Next());
      if (!value.is_int()) return InvalidArgument("the format '*' needs an integer");
      return std::clamp(value.as_int(), -kLargest, kLargest);
    }
    int64_t number = 0;
    for (; pos_ < all_.size() && all_[pos_] >= '0' && all_[pos_] <= '9'; ++pos_) {
      number = std::min(kLargest, number * 10 + (all_[pos_] - '0'));
    }
    return number;
  }

  // Formats the conversion after a '%'.
  StatusOr<MarkedText> Conversion() {
    std::optional<Value> value;
    if (pos_ < all_.size() && all_[pos_] == '(') {
      BATON_ASSIGN_OR_RETURN(value, Named());
    }
    bool left = false;
    bool zero = false;
    FormatSpec spec;
    for (; pos_ < all_.size() && std::string_view("-+ #0").find(all_[pos_]) < 5; ++pos_) {
      left = left || all_[pos_] == '-';
      zero = zero || all_[pos_] == '0';
      spec.alternate = spec.alternate || all_[pos_] == '#';
      if (all_[pos_] == '+' || (all_[pos_] == ' ' && spec.sign == '-')) spec.sign = all_[pos_];
    }
    BATON_ASSIGN_OR_RETURN(const int64_t width, Number());
    std::optional<int64_t> precision;
    if (pos_ < all_.size() && all_[pos_] == '.') {
      ++pos_;
      BATON_ASSIGN_OR_RETURN(precision, Number());
    }
    while (pos_ < all_.size() && std::string_view("hlL").find(all_[pos_]) < 3) ++pos_;
    if (pos_ >= all_.size()) return InvalidArgument("a format ends inside of a '%' conversion");
    const char type = all_[pos_++];
    if (!value) {
      BATON_ASSIGN_OR_RETURN(value, Next());
    }
    left = left || width < 0;
    const std::string align = left ? "<" : zero ? "0=" : ">";
    const std::string size = fmt::format("{}", width < 0 ? -width : width);
    if (std::string_view("sra").find(type) < 3) {
      BATON_ASSIGN_OR_RETURN(MarkedText text,
                             type == 's' ? ToText(*value, budget_) : ToRepr(*value, budget_));
      if (type == 'a') text = AsciiOnly(text);
      const std::string cut =
          precision ? fmt::format(".{}", std::min<int64_t>(*precision, 1000)) : "";
      return FormatValue(
          Value::String(std::move(text), &budget_), (left ? "<" : ">") + size + cut, budget_);
    }
    return Number(*value,
                  type,
                  align + (spec.sign == '-' ? "" : std::string(1, spec.sign)),
                  spec.alternate,
                  size,
                  precision);
  }

  StatusOr<MarkedText> Number(const Value& value,
                              char type,
                              const std::string& flags,
                              bool alternate,
                              const std::string& width,
                              std::optional<int64_t> precision) {
    if (type == 'c' && value.is_string() && CountCodePoints(value.str()) == 1) {
      return FormatValue(value, (flags[0] == '<' ? "<" : ">") + width, budget_);
    }
    if (std::string_view("diuoxXeEfFgGc").find(type) == std::string_view::npos) {
      return InvalidArgument("the format '%{}' is not known", type);
    }
    if (!value.is_number()) {
      return InvalidArgument("the format '%{}' needs a number, not a {}", type, value.type_name());
    }
    const std::string head = flags + (alternate ? "#" : "") + width;
    if (std::string_view("eEfFgG").find(type) < 6) {
      return FormatValue(
          value,
          fmt::format("{}.{}{}", head, std::min<int64_t>(precision.value_or(6), 1000), type),
          budget_);
    }
    Value whole = value;
    if (value.is_float()) {
      if (!(std::abs(value.as_float()) < 9e18) || type == 'o' || type == 'x' || type == 'X') {
        return InvalidArgument("the format '%{}' needs an integer", type);
      }
      whole = Value::Int(static_cast<int64_t>(value.as_float()));
    }
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    return FormatValue(whole, head + (decimal ? 'd' : type), budget_);
  }

  const MarkedText& format_;
  const std::string_view all_;
  const Value& values_;
  Budget& budget_;
  std::vector<Value> items_;
  size_t used_ = 0;
  size_t pos_ = 0;
};

}  // namespace

StatusOr<Value> FormatBraces(Interpreter& interpreter,
                             std::string_view function,
                             const MarkedText& format,
                             const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(MarkedText text,
                         BraceFormatter(interpreter, function, arguments).Format(format, 0));
  return interpreter.NewString(std::move(text));
}

StatusOr<Value> FormatPercent(const MarkedText& format, const Value& values, Budget& budget) {
  return PercentFormatter(format, values, budget).Run();
}

}  // namespace baton::jinja
