#include <algorithm>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/builtin_tests.h"
#include "common/text/jinja/compare.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/methods.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

// The part of Interpreter that evaluates expressions.

namespace baton::jinja {
namespace {

using Kind = Expression::Kind;

// Converts a negative index, which counts from the end, to one from the start. The result may be
// out of range.
int64_t Wrap(int64_t index, int64_t size) {
  return index < 0 ? index + size : index;
}

}  // namespace

StatusOr<Value> Interpreter::Evaluate(const Expression& node) {
  if (++depth_ > kMaxDepth) {
    --depth_;
    return MakeStatus(
        StatusCode::kResourceExhausted, "the template recurses more than {} deep", kMaxDepth);
  }
  auto value = EvaluateKind(node);
  --depth_;
  if (!value.ok()) return AtLine(value.status(), node.line);
  Status ok = budget_.Spend(1);
  if (ok.ok()) ok = CheckExtent(*value);
  if (!ok.ok()) return AtLine(ok, node.line);
  return value;
}

StatusOr<Value> Interpreter::EvaluateKind(const Expression& node) {
  switch (node.kind) {
    case Kind::kLiteral:
      return node.literal;
    case Kind::kVariable:
      return EvaluateVariable(node);
    case Kind::kList:
    case Kind::kTuple: {
      BATON_ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(node.operands));
      return node.kind == Kind::kTuple ? Value::Tuple(std::move(items), budget_)
                                       : Value::List(std::move(items), budget_);
    }
    case Kind::kDict:
      return EvaluateDict(node);
    case Kind::kAttribute: {
      BATON_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.operands[0]));
      return Attribute(object, node.name);
    }
    case Kind::kItem: {
      BATON_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.operands[0]));
      BATON_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.operands[1]));
      return Item(object, key);
    }
    case Kind::kSlice:
      return EvaluateSlice(node);
    case Kind::kCall:
      return EvaluateCall(node);
    case Kind::kFilter:
      return EvaluateFilter(node);
    case Kind::kTest:
      return EvaluateTest(node);
    case Kind::kUnary:
      return EvaluateUnary(node);
    case Kind::kBinary:
      return EvaluateBinary(node);
    case Kind::kCompare:
      return EvaluateCompare(node);
    case Kind::kCondition:
      return EvaluateCondition(node);
  }
  return Value();
}

StatusOr<std::vector<Value>> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const auto& node : nodes) {
    BATON_ASSIGN_OR_RETURN(Value value, Evaluate(*node));
    values.push_back(std::move(value));
  }
  return values;
}

StatusOr<Value> Interpreter::EvaluateVariable(const Expression& node) {
  if (const Value* value = scope_->Find(node.name)) return *value;
  return Value::Undefined(fmt::format("'{}' is undefined", node.name));
}

StatusOr<Value> Interpreter::EvaluateDict(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(std::vector<Value> parts, EvaluateAll(node.operands));
  std::vector<DictObject::Entry> entries;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    entries.emplace_back(std::move(parts[i]), std::move(parts[i + 1]));
  }
  return DictObject::Make(std::move(entries), budget_);
}

StatusOr<Value> Interpreter::EvaluateSlice(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.operands[0]));
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.operands[i + 1] == nullptr) continue;
    BATON_ASSIGN_OR_RETURN(parts[i], Evaluate(*node.operands[i + 1]));
    if (!parts[i].is_none() && !parts[i].is_int() && !parts[i].is_bool()) {
      return InvalidArgument("a slice needs integers, not a {}", parts[i].type_name());
    }
  }
  const bool given = !parts[2].is_undefined() && !parts[2].is_none();
  const int64_t step = given ? parts[2].as_int() : 1;
  if (step == 0) return InvalidArgument("the step of a slice is 0");
  const auto index = [](const Value& part) {
    return part.is_undefined() || part.is_none() ? std::nullopt : std::optional(part.as_int());
  };
  const auto range_of = [&](size_t size) {
    return SliceOf(index(parts[0]), index(parts[1]), step, static_cast<int64_t>(size));
  };
  if (object.is_string()) {
    BATON_RETURN_IF_ERROR(budget_.SpendOnBytes(object.text().size()));
    const size_t size = CountCodePoints(object.str());
    BATON_ASSIGN_OR_RETURN(
        MarkedText text,
        SliceText(object.text(), static_cast<int64_t>(size), range_of(size), budget_));
    return NewString(std::move(text));
  }
  if (object.is_undefined()) return InvalidArgument("{}", object.UndefinedMessage());
  if (!object.is_sequence())
    return Value::Undefined(fmt::format("a {} cannot be sliced", object.type_name()));
  const SliceRange range = range_of(object.items().size());
  BATON_RETURN_IF_ERROR(budget_.Spend(static_cast<uint64_t>(range.count)));
  BATON_RETURN_IF_ERROR(budget_.CheckRoom(static_cast<size_t>(range.count) * sizeof(Value)));
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    out.push_back(object.items()[static_cast<size_t>(range.first + i * range.stride)]);
  }
  return object.is_tuple() ? Value::Tuple(std::move(out), budget_)
                           : Value::List(std::move(out), budget_);
}

StatusOr<Arguments> Interpreter::EvaluateArguments(const CallArguments& nodes) {
  Arguments arguments;
  BATON_ASSIGN_OR_RETURN(arguments.positional, EvaluateAll(nodes.positional));
  for (const auto& [name, node] : nodes.named) {
    BATON_ASSIGN_OR_RETURN(Value value, Evaluate(*node));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (nodes.rest != nullptr) {
    BATON_ASSIGN_OR_RETURN(const Value rest, Evaluate(*nodes.rest));
    BATON_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(rest));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (nodes.rest_named != nullptr) {
    BATON_ASSIGN_OR_RETURN(const Value rest, Evaluate(*nodes.rest_named));
    if (!rest.is_dict()) return InvalidArgument("'**' needs a dict, not a {}", rest.type_name());
    for (const auto& [key, value] : rest.dict().entries) {
      if (!key.is_string()) return InvalidArgument("'**' needs string keys");
      arguments.named.emplace_back(key.str(), value);
    }
  }
  return arguments;
}

StatusOr<Value> Interpreter::EvaluateCall(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.operands[0]));
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments));
  return CallValue(callee, arguments);
}

StatusOr<Value> Interpreter::CallValue(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) return InvalidArgument("{}", callee.UndefinedMessage());
  if (callee.is_loop()) return CallLoop(callee.loop(), arguments);
  if (!callee.is_function()) return InvalidArgument("a {} cannot be called", callee.type_name());
  BATON_RETURN_IF_ERROR(SpendOnArguments(arguments, budget_));
  return callee.function().call(*this, arguments);
}

StatusOr<Value> Interpreter::EvaluateFilter(const Expression& node) {
  Value input;
  if (node.operands[0] != nullptr) {
    BATON_ASSIGN_OR_RETURN(input, Evaluate(*node.operands[0]));
  } else if (filter_input_ != nullptr) {
    input = *filter_input_;
  }
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments));
  return ApplyFilter(*this, node.name, input, arguments);
}

StatusOr<Value> Interpreter::EvaluateTest(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(const Value input, Evaluate(*node.operands[0]));
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments));
  BATON_ASSIGN_OR_RETURN(const bool result, ApplyTest(*this, node.name, input, arguments));
  return Value::Bool(result);
}

StatusOr<Value> Interpreter::EvaluateUnary(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.operands[0]));
  if (node.name == "not") return Value::Bool(!value.Truthy());
  if (value.is_undefined()) return InvalidArgument("{}", value.UndefinedMessage());
  if (!value.is_number())
    return InvalidArgument("'{}' does not work on a {}", node.name, value.type_name());
  if (value.is_float())
    return Value::Float(node.name == "-" ? -value.as_float() : value.as_float());
  if (node.name == "+") return Value::Int(value.as_int());
  return Operate("-", Value::Int(0), value, budget_);
}

StatusOr<Value> Interpreter::EvaluateBinary(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0]));
  if (node.name == "and" || node.name == "or") {
    if (left.Truthy() == (node.name == "or")) return left;
    return Evaluate(*node.operands[1]);
  }
  BATON_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.operands[1]));
  return Operate(node.name, left, right, budget_);
}

StatusOr<Value> Interpreter::EvaluateCompare(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(Value left, Evaluate(*node.operands[0]));
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    const std::string& op = node.comparisons[i];
    BATON_ASSIGN_OR_RETURN(Value right, Evaluate(*node.operands[i + 1]));
    StatusOr<bool> result = false;
    if (op == "==" || op == "!=") {
      result = PaidEqual(left, right, budget_);
    } else if (op == "in" || op == "not in") {
      result = Contains(right, left, budget_);
    } else {
      BATON_RETURN_IF_ERROR(budget_.Spend(std::min(left.extent().weight, right.extent().weight)));
      result = op == "<" || op == ">=" ? Less(left, right) : Less(right, left);
    }
    if (!result.ok()) return result.status();
    const bool negated = op == "!=" || op == "not in" || op == ">=" || op == "<=";
    if (*result == negated) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

StatusOr<Value> Interpreter::EvaluateCondition(const Expression& node) {
  BATON_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.operands[1]));
  if (condition.Truthy()) return Evaluate(*node.operands[0]);
  if (node.operands[2] == nullptr) {
    return Value::Undefined("an inline if without else was false");
  }
  return Evaluate(*node.operands[2]);
}

StatusOr<std::vector<Value>> Interpreter::Iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence()) {
    items = value.items();
  } else if (value.is_dict()) {
    for (const auto& entry : value.dict().entries) items.push_back(entry.first);
  } else if (value.is_string()) {
    const MarkedText& text = value.text();
    const size_t count = CountCodePoints(text.text());
    BATON_RETURN_IF_ERROR(budget_.Spend(text.size()));
    BATON_RETURN_IF_ERROR(budget_.CheckRoom(count * kShortStringBytes));
    items.reserve(count);
    for (size_t pos = 0; pos < text.size();) {
      const size_t end = pos + DecodeUtf8(text.text(), pos).length;
      items.push_back(NewString(text.Slice(pos, end)));
      pos = end;
    }
  } else if (!value.is_undefined()) {
    return InvalidArgument("a {} cannot be iterated over", value.type_name());
  }
  BATON_RETURN_IF_ERROR(budget_.Spend(items.size() / 8));
  return items;
}

StatusOr<Value> Interpreter::Attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) return InvalidArgument("{}", object.UndefinedMessage());
  if (object.is_loop()) return LoopAttribute(object, name);
  if (object.is_namespace()) {
    const auto it = object.ns().attributes.find(name);
    if (it != object.ns().attributes.end()) return it->second;
  }
  if (auto method = FindMethod(object, name)) return *std::move(method);
  if (object.is_dict() && IsHiddenMethod(name)) {
    return Value::Undefined(fmt::format("the method '{}' of a dict is not available", name));
  }
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  return Value::Undefined(
      fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

StatusOr<Value> Interpreter::Item(const Value& object, const Value& key) {
  if (object.is_undefined()) return InvalidArgument("{}", object.UndefinedMessage());
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(key)) return *value;
  }
  if ((object.is_sequence() || object.is_string()) && (key.is_int() || key.is_bool())) {
    if (object.is_sequence()) {
      const auto size = static_cast<int64_t>(object.items().size());
      const int64_t index = Wrap(key.as_int(), size);
      if (index >= 0 && index < size) return object.items()[static_cast<size_t>(index)];
    } else {
      BATON_RETURN_IF_ERROR(budget_.Spend(object.text().size() / 32));
      const auto size = static_cast<int64_t>(CountCodePoints(object.str()));
      const int64_t index = Wrap(key.as_int(), size);
      if (index >= 0 && index < size) {
        size_t pos = 0;
        for (int64_t i = 0; i < index; ++i) pos += DecodeUtf8(object.str(), pos).length;
        return NewString(object.text().Slice(pos, pos + DecodeUtf8(object.str(), pos).length));
      }
    }
  }
  if (key.is_string() && !(object.is_dict() && FindMethod(object, key.str()) == std::nullopt)) {
    return Attribute(object, key.str());
  }
  BATON_ASSIGN_OR_RETURN(const MarkedText shown, ToRepr(key, budget_));
  return Value::Undefined(
      fmt::format("'{} object' has no item {}", object.type_name(), shown.text().substr(0, 100)));
}

StatusOr<Value> Interpreter::LoopAttribute(const Value& value, const std::string& name) {
  const LoopObject& loop = value.loop();
  const auto number = [](size_t n) { return Value::Int(static_cast<int64_t>(n)); };
  const size_t count = loop.items.size();
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(count - loop.index);
  if (name == "revindex0") return number(count - loop.index - 1);
  if (name == "first") return Value::Bool(loop.index == 0);
  if (name == "last") return Value::Bool(loop.index + 1 == count);
  if (name == "length") return number(count);
  if (name == "depth") return Value::Int(loop.depth);
  if (name == "depth0") return Value::Int(loop.depth - 1);
  if (name == "previtem") {
    return loop.index > 0 ? loop.items[loop.index - 1]
                          : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return loop.index + 1 < count ? loop.items[loop.index + 1]
                                  : Value::Undefined("there is no next item");
  }
  if (auto method = FindMethod(value, name)) return *std::move(method);
  return Value::Undefined(fmt::format("'loop' has no attribute '{}'", name));
}

}  // namespace baton::jinja
