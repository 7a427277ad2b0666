#include "common/text/jinja/operators.h"

#include <cmath>

#include "common/text/jinja/text_format.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"

namespace baton::jinja {
namespace {

Status NoSuchOperation(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return InvalidArgument("{}", value->UndefinedMessage());
  }
  return InvalidArgument("'{}' does not work on a {} and a {}", op, a.type_name(), b.type_name());
}

Status TooLarge(std::string_view op) {
  return InvalidArgument("the result of '{}' does not fit into 64 bits", op);
}

StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge("**");
  }
  return Value::Int(result);
}

StatusOr<Value> OperateIntegers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return IntegerPower(a, b);
  } else {
    if (b == 0) return InvalidArgument("division by zero");
    if (op == "/") return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {  // INT64_MIN / -1 traps
      if (op == "%") return Value::Int(0);
      overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == "%" ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
    }
  }
  if (overflow) return TooLarge(op);
  return Value::Int(result);
}

StatusOr<Value> OperateFloats(std::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") return Value::Float(std::pow(a, b));
  if (b == 0) return InvalidArgument("division by zero");
  if (op == "/") return Value::Float(a / b);
  if (op == "//") return Value::Float(std::floor(a / b));
  const double remainder = std::fmod(a, b);
  return Value::Float(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
}

StatusOr<Value> Join(const MarkedText& a, const MarkedText& b, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.CheckRoom(a.size() + b.size()));
  BATON_RETURN_IF_ERROR(budget.SpendOnBytes(a.size() + b.size()));
  MarkedText out = a;
  out.Append(b);
  return Value::String(std::move(out), &budget);
}

StatusOr<Value> RepeatList(const std::vector<Value>& items,
                           int64_t count,
                           bool tuple,
                           Budget& budget) {
  std::vector<Value> out;
  if (count > 0 && !items.empty()) {
    const size_t most = SIZE_MAX / sizeof(Value) / items.size();
    const size_t bytes = static_cast<uint64_t>(count) > most
                             ? SIZE_MAX
                             : static_cast<size_t>(count) * items.size() * sizeof(Value);
    BATON_RETURN_IF_ERROR(budget.CheckRoom(bytes));
    BATON_RETURN_IF_ERROR(budget.Spend(static_cast<uint64_t>(count) * items.size()));
    for (int64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return tuple ? Value::Tuple(std::move(out), budget) : Value::List(std::move(out), budget);
}

StatusOr<Value> ConcatenateLists(const Value& a, const Value& b, Budget& budget) {
  std::vector<Value> out = a.items();
  out.insert(out.end(), b.items().begin(), b.items().end());
  BATON_RETURN_IF_ERROR(budget.Spend(out.size()));
  return a.is_tuple() ? Value::Tuple(std::move(out), budget) : Value::List(std::move(out), budget);
}

}  // namespace

StatusOr<Value> Operate(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    BATON_ASSIGN_OR_RETURN(const MarkedText left, ToText(a, budget));
    BATON_ASSIGN_OR_RETURN(const MarkedText right, ToText(b, budget));
    return Join(left, right, budget);
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return OperateFloats(op, a.as_float(), b.as_float());
    return OperateIntegers(op, a.as_int(), b.as_int());
  }
  if (op == "+" && a.is_string() && b.is_string()) return Join(a.text(), b.text(), budget);
  if (op == "+" && a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    return ConcatenateLists(a, b, budget);
  }
  if (op == "%" && a.is_string()) {
    return FormatPercent(a.text(), b, budget);
  }
  if (op == "*") {
    const bool swapped = a.is_int() || a.is_bool();
    const Value& many = swapped ? b : a;
    const Value& count = swapped ? a : b;
    if (many.is_string() && (count.is_int() || count.is_bool())) {
      BATON_ASSIGN_OR_RETURN(MarkedText text, Repeat(many.text(), count.as_int(), budget));
      return Value::String(std::move(text), &budget);
    }
    if (many.is_sequence() && (count.is_int() || count.is_bool())) {
      return RepeatList(many.items(), count.as_int(), many.is_tuple(), budget);
    }
  }
  return NoSuchOperation(op, a, b);
}

}  // namespace baton::jinja
