#include "common/text/jinja/builtin_tests.h"

#include <algorithm>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/compare.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_ops.h"

namespace baton::jinja {
namespace {

using Predicate = bool (*)(const Value&);
using Relation = StatusOr<bool> (*)(Interpreter&, const Value&, const Value&);

bool IsIterable(const Value& v) {
  return v.is_sequence() || v.is_dict() || v.is_string() || v.is_undefined() || v.is_loop();
}

bool IsCallable(const Value& v) {
  return v.is_function() || v.is_undefined();
}

bool HasCase(const Value& v, LetterCase target) {
  if (!v.is_string()) return false;
  const LetterCase other = target == LetterCase::kUpper ? LetterCase::kLower : LetterCase::kUpper;
  return ChangeCase(v.text(), target).text() == v.str() &&
         ChangeCase(v.text(), other).text() != v.str();
}

// Python's `is`, as far as values without identity can tell: 1, 1.0 and true are not the same.
StatusOr<bool> IsSame(Interpreter& interpreter, const Value& a, const Value& b) {
  if (a.type_name() != b.type_name()) return false;
  return PaidEqual(a, b, interpreter.budget());
}

StatusOr<bool> IsDivisible(const Value& a, const Value& b) {
  const bool integers = (a.is_int() || a.is_bool()) && (b.is_int() || b.is_bool());
  if (!integers)
    return InvalidArgument(
        "divisibleby needs integers, not a {} and a {}", a.type_name(), b.type_name());
  if (b.as_int() == 0) return InvalidArgument("division by zero");
  return b.as_int() == -1 || a.as_int() % b.as_int() == 0;
}

// `test`: the name of the test, for errors.
StatusOr<bool> IsOdd(std::string_view test, const Value& value) {
  if (!value.is_int() && !value.is_bool())
    return InvalidArgument("{} needs an integer, not a {}", test, value.type_name());
  return value.as_int() % 2 != 0;
}

Predicate FindPredicate(const std::string& name) {
  static const absl::flat_hash_map<std::string, Predicate> table = {
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"true", [](const Value& v) { return v.is_bool() && v.as_bool(); }},
      {"false", [](const Value& v) { return v.is_bool() && !v.as_bool(); }},
      {"integer", [](const Value& v) { return v.is_int(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"mapping", [](const Value& v) { return v.is_dict(); }},
      {"iterable", IsIterable},
      {"sequence",
       [](const Value& v) {
         return v.is_sequence() || v.is_dict() || v.is_string() || v.is_undefined();
       }},
      {"callable", IsCallable},
      {"upper", [](const Value& v) { return HasCase(v, LetterCase::kUpper); }},
      {"lower", [](const Value& v) { return HasCase(v, LetterCase::kLower); }},
      {"escaped", [](const Value&) { return false; }}};
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

StatusOr<bool> TestEqual(Interpreter& interpreter, const Value& a, const Value& b) {
  return PaidEqual(a, b, interpreter.budget());
}

StatusOr<bool> TestLess(Interpreter& interpreter, const Value& a, const Value& b) {
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(std::min(a.extent().weight, b.extent().weight)));
  return Less(a, b);
}

StatusOr<bool> Negate(StatusOr<bool> result) {
  if (result.ok()) *result = !*result;
  return result;
}

Relation FindRelation(const std::string& name) {
  static const auto* table = [] {
    auto* relations = new absl::flat_hash_map<std::string, Relation>();
    const auto add = [&](std::initializer_list<const char*> names, Relation relation) {
      for (const char* alias : names) relations->emplace(alias, relation);
    };
    using I = Interpreter;
    using V = Value;
    add({"eq", "==", "equalto"}, TestEqual);
    add({"ne", "!="}, [](I& i, const V& a, const V& b) { return Negate(TestEqual(i, a, b)); });
    add({"lt", "<", "lessthan"}, TestLess);
    add({"gt", ">", "greaterthan"}, [](I& i, const V& a, const V& b) { return TestLess(i, b, a); });
    add({"ge", ">="}, [](I& i, const V& a, const V& b) { return Negate(TestLess(i, a, b)); });
    add({"le", "<="}, [](I& i, const V& a, const V& b) { return Negate(TestLess(i, b, a)); });
    add({"in"}, [](I& i, const V& a, const V& b) { return Contains(b, a, i.budget()); });
    add({"divisibleby"}, [](I&, const V& a, const V& b) { return IsDivisible(a, b); });
    add({"sameas"}, IsSame);
    return relations;
  }();
  const auto it = table->find(name);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace

StatusOr<bool> ApplyTest(Interpreter& interpreter,
                         const std::string& name,
                         const Value& input,
                         const Arguments& arguments) {
  if (const Predicate predicate = FindPredicate(name)) {
    BATON_RETURN_IF_ERROR(BoundArguments::Bind(name, arguments, {}).status());
    return predicate(input);
  }
  if (const Relation relation = FindRelation(name)) {
    BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind(name, arguments, {"other"}, 1));
    return relation(interpreter, input, bound[0]);
  }
  if (name == "odd") return IsOdd(name, input);
  if (name == "even") return Negate(IsOdd(name, input));
  if (name == "filter") return input.is_string() && HasFilter(input.str());
  if (name == "test")
    return input.is_string() && (FindPredicate(input.str()) || FindRelation(input.str()));
  return InvalidArgument("there is no test named '{}'", name);
}

}  // namespace baton::jinja
