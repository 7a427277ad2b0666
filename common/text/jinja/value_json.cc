#include "common/text/jinja/value_json.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "common/text/jinja/objects.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

class Writer final {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Status Write(const Value& value, int level) {
    if (value.is_string()) return WriteString(value.str());
    if (value.is_sequence()) return WriteList(value.items(), level);
    if (value.is_dict()) return WriteDict(value.dict(), level);
    if (!value.is_none() && !value.is_number()) {
      return InvalidArgument("tojson cannot write a value of type {}", value.type_name());
    }
    out_ += ScalarText(value);
    return OkStatus();
  }
  std::string Take() { return std::move(out_); }

 private:
  static std::string ScalarText(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.as_bool() ? "true" : "false";
    if (value.is_int()) return std::to_string(value.as_int());
    const double number = value.as_float();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return FloatText(number);
  }

  Status WriteList(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return OkStatus();
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      BATON_RETURN_IF_ERROR(StartItem(i == 0, level + 1));
      BATON_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    return Close(']', level);
  }

  Status WriteDict(const DictObject& dict, int level) {
    std::vector<std::pair<std::string, const Value*>> members;
    members.reserve(dict.entries.size());
    for (const auto& [key, value] : dict.entries) {
      members.emplace_back(key.is_string() ? key.str() : ScalarText(key), &value);
    }
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
        return a.first < b.first;
      });
    }
    if (members.empty()) {
      out_ += "{}";
      return OkStatus();
    }
    out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      BATON_RETURN_IF_ERROR(StartItem(i == 0, level + 1));
      BATON_RETURN_IF_ERROR(WriteString(members[i].first));
      out_ += style_.key_separator;
      BATON_RETURN_IF_ERROR(Write(*members[i].second, level + 1));
    }
    return Close('}', level);
  }

  Status StartItem(bool first, int level) {
    if (!first) out_ += style_.item_separator;
    return NewLine(level);
  }

  Status Close(char bracket, int level) {
    BATON_RETURN_IF_ERROR(NewLine(level));
    out_ += bracket;
    return OkStatus();
  }

  Status NewLine(int level) {
    if (!style_.indent) return OkStatus();
    const size_t spaces = static_cast<size_t>(level) * static_cast<size_t>(*style_.indent);
    BATON_RETURN_IF_ERROR(budget_.CheckRoom(out_.size() + spaces));
    out_.append(1, '\n').append(spaces, ' ');
    return OkStatus();
  }

  Status WriteString(std::string_view text) {
    BATON_RETURN_IF_ERROR(budget_.CheckRoom(out_.size() + 2 * text.size()));
    out_ += '"';
    for (size_t pos = 0; pos < text.size();) {
      const size_t plain = pos;
      while (pos < text.size() && IsPlain(text[pos])) ++pos;
      out_ += text.substr(plain, pos - plain);
      if (pos == text.size()) break;
      const CodePoint c = DecodeUtf8(text, pos);
      AppendCharacter(c.value, text.substr(pos, c.length));
      pos += c.length;
    }
    out_ += '"';
    return OkStatus();
  }

  // Whether a byte is written without an escape.
  bool IsPlain(char byte) const {
    const auto value = static_cast<uint8_t>(byte);
    return value >= 0x20 && byte != '"' && byte != '\\' && (!style_.ascii || value < 0x7F);
  }

  void AppendCharacter(char32_t c, std::string_view bytes) {
    static constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kNames = "\"\\nrtbf";
    const size_t at = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_.append({'\\', kNames[at]});
    } else if (c < 0x20 || (style_.ascii && c > 0x7E && c < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", uint32_t{c});
    } else if (style_.ascii && c >= 0x10000) {
      const uint32_t rest = c - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

constexpr int kMaxInputDepth = 60;  // levels; leaves room for a template's own containers

StatusOr<Value> Convert(const nlohmann::ordered_json& json,
                        bool trusted,
                        int level,
                        Budget& budget) {
  if (level > kMaxInputDepth) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "the template's input is nested deeper than {} levels",
                      kMaxInputDepth);
  }
  BATON_RETURN_IF_ERROR(budget.CheckRoom(0));
  if (json.is_object()) {
    std::vector<DictObject::Entry> entries;
    entries.reserve(json.size());
    for (const auto& [key, item] : json.items()) {
      BATON_ASSIGN_OR_RETURN(Value value, Convert(item, trusted, level + 1, budget));
      entries.emplace_back(Value::String(MarkedText(ReplaceInvalidUtf8(key), trusted), &budget),
                           std::move(value));
    }
    return DictObject::Make(std::move(entries), budget);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const auto& item : json) {
      BATON_ASSIGN_OR_RETURN(Value value, Convert(item, trusted, level + 1, budget));
      items.push_back(std::move(value));
    }
    return Value::List(std::move(items), budget);
  }
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    return Value::String(MarkedText(ReplaceInvalidUtf8(text), trusted), &budget);
  }
  if (json.is_boolean()) return Value::Bool(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return Value::Float(json.get<double>());
  }
  if (json.is_number_integer()) return Value::Int(json.get<int64_t>());
  if (json.is_number_float()) return Value::Float(json.get<double>());
  return Value::None();
}

}  // namespace

StatusOr<Value> FromJson(const nlohmann::ordered_json& json, bool trusted, Budget& budget) {
  return Convert(json, trusted, 0, budget);
}

StatusOr<MarkedText> ToJson(const Value& value, const JsonStyle& style, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.Spend(2 * value.extent().weight));
  Writer writer(style, budget);
  BATON_RETURN_IF_ERROR(writer.Write(value, 0));
  return MarkedText(writer.Take(), IsTrusted(value));
}

}  // namespace baton::jinja
