#include <algorithm>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/compare.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

// The filter pprint: Python's pprint.pformat with its default options.

namespace baton::jinja {
namespace {

constexpr int64_t kWidth = 80;

// `value` with the keys of all dicts sorted.
StatusOr<Value> Sorted(const Value& value, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.Spend(1));
  if (value.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : value.items()) {
      BATON_ASSIGN_OR_RETURN(Value sorted, Sorted(item, budget));
      items.push_back(std::move(sorted));
    }
    return value.is_tuple() ? Value::Tuple(std::move(items), budget)
                            : Value::List(std::move(items), budget);
  }
  if (!value.is_dict()) return value;
  std::vector<DictObject::Entry> entries;
  for (const auto& [key, item] : value.dict().entries) {
    BATON_ASSIGN_OR_RETURN(Value sorted, Sorted(item, budget));
    entries.emplace_back(key, std::move(sorted));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    if (a.first.type_name() != b.first.type_name())
      return a.first.type_name() < b.first.type_name();
    const auto less = Less(a.first, b.first);
    return less.ok() && *less;
  });
  return DictObject::Make(std::move(entries), budget);
}

class PrettyPrinter final {
 public:
  explicit PrettyPrinter(Budget& budget) : budget_(budget) {}

  // Writes `value` from column `indent` on. `allowance` characters must still fit after it on its
  // last line.
  Status Write(const Value& value, int64_t indent, int64_t allowance, int level) {
    BATON_ASSIGN_OR_RETURN(const std::string rep, Repr(value));
    const bool fits = Length(rep) <= kWidth - indent - allowance;
    if (fits || !(value.is_dict() || value.is_sequence() || value.is_string())) {
      out_ += rep;
      return budget_.CheckRoom(out_.capacity());
    }
    if (value.is_string()) return WriteString(value.str(), indent, allowance, level + 1);
    if (value.is_dict()) return WriteDict(value.dict(), indent + 1, allowance + 1, level + 1);
    const bool comma = value.is_tuple() && value.items().size() == 1;
    out_ += value.is_tuple() ? '(' : '[';
    for (size_t i = 0; i < value.items().size(); ++i) {
      const bool last = i + 1 == value.items().size();
      if (i > 0) NextLine(",", indent + 1);
      BATON_RETURN_IF_ERROR(
          Write(value.items()[i], indent + 1, last ? allowance + (comma ? 2 : 1) : 1, level + 1));
    }
    out_ += comma ? ",)" : value.is_tuple() ? ")" : "]";
    return OkStatus();
  }
  std::string Take() { return std::move(out_); }

 private:
  StatusOr<std::string> Repr(const Value& value) {
    BATON_ASSIGN_OR_RETURN(const MarkedText text, ToRepr(value, budget_));
    return text.text();
  }
  StatusOr<std::string> ReprOfText(std::string_view text) {
    return Repr(Value::String(MarkedText(std::string(text), true), &budget_));
  }
  static int64_t Length(std::string_view text) {
    return static_cast<int64_t>(CountCodePoints(text));
  }
  void NextLine(std::string_view after, int64_t indent) {
    out_.append(after).append("\n").append(static_cast<size_t>(indent), ' ');
  }

  Status WriteDict(const DictObject& dict, int64_t indent, int64_t allowance, int level) {
    out_ += '{';
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      const auto& [key, value] = dict.entries[i];
      if (i > 0) NextLine(",", indent);
      BATON_ASSIGN_OR_RETURN(const std::string rep, Repr(key));
      out_.append(rep).append(": ");
      const bool last = i + 1 == dict.entries.size();
      BATON_RETURN_IF_ERROR(Write(value, indent + Length(rep) + 2, last ? allowance : 1, level));
    }
    out_ += '}';
    return OkStatus();
  }

  // Writes a long string as several strings, one per line, cut after spaces.
  Status WriteString(const std::string& text, int64_t indent, int64_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const int64_t width = kWidth - indent;
    std::vector<std::string> chunks;
    BATON_ASSIGN_OR_RETURN(const auto lines, SplitLines(text, true, budget_));
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last = i + 1 == lines.size();
      const std::string line = text.substr(lines[i].begin, lines[i].end - lines[i].begin);
      BATON_ASSIGN_OR_RETURN(std::string rep, ReprOfText(line));
      if (Length(rep) <= width - (last ? allowance : 0)) {
        chunks.push_back(std::move(rep));
      } else {
        BATON_RETURN_IF_ERROR(CutLine(line, width, last ? allowance : 0, chunks));
      }
    }
    if (level == 1 && chunks.size() > 1) out_ += '(';
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) NextLine("", indent);
      out_ += chunks[i];
      BATON_RETURN_IF_ERROR(budget_.CheckRoom(out_.capacity()));
    }
    if (level == 1 && chunks.size() > 1) out_ += ')';
    return OkStatus();
  }

  Status CutLine(const std::string& line,
                 int64_t width,
                 int64_t allowance,
                 std::vector<std::string>& chunks) {
    std::string current;
    for (size_t pos = 0; pos < line.size();) {
      const size_t begin = pos;
      for (const bool space : {false, true}) {
        while (pos < line.size() && IsPythonSpace(DecodeUtf8(line, pos).value) == space) {
          pos += DecodeUtf8(line, pos).length;
        }
      }
      const std::string part = line.substr(begin, pos - begin);
      const int64_t most = width - (pos == line.size() ? allowance : 0);
      BATON_ASSIGN_OR_RETURN(const std::string candidate, ReprOfText(current + part));
      if (Length(candidate) <= most) {
        current += part;
        continue;
      }
      if (!current.empty()) {
        BATON_ASSIGN_OR_RETURN(std::string rep, ReprOfText(current));
        chunks.push_back(std::move(rep));
      }
      current = part;
    }
    if (current.empty()) return OkStatus();
    BATON_ASSIGN_OR_RETURN(std::string rep, ReprOfText(current));
    chunks.push_back(std::move(rep));
    return OkStatus();
  }

  Budget& budget_;
  std::string out_;
};

}  // namespace

StatusOr<Value> PrettyPrint(Interpreter& interpreter,
                            const Value& input,
                            const Arguments& arguments) {
  BATON_RETURN_IF_ERROR(BoundArguments::Bind("pprint", arguments, {}).status());
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(input.extent().weight));
  BATON_ASSIGN_OR_RETURN(const Value sorted, Sorted(input, interpreter.budget()));
  PrettyPrinter printer(interpreter.budget());
  BATON_RETURN_IF_ERROR(printer.Write(sorted, 0, 0, 0));
  return interpreter.NewString(printer.Take(), IsTrusted(input));
}

}  // namespace baton::jinja
