#include "common/text/jinja/methods.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/compare.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/string_methods.h"

namespace baton::jinja {
namespace {

StatusOr<Value> DictGet(Interpreter&, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("get", arguments, {"key", "default"}, 1));
  if (const Value* value = self.dict().Find(bound[0])) return *value;
  return bound.Has(1) ? bound[1] : Value::None();
}

StatusOr<Value> DictKeys(Interpreter& interpreter, const Value& self, const Arguments&) {
  std::vector<Value> keys;
  for (const auto& entry : self.dict().entries) keys.push_back(entry.first);
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(keys.size()));
  return Value::List(std::move(keys), interpreter.budget());
}

StatusOr<Value> DictValues(Interpreter& interpreter, const Value& self, const Arguments&) {
  std::vector<Value> values;
  for (const auto& entry : self.dict().entries) values.push_back(entry.second);
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(values.size()));
  return Value::List(std::move(values), interpreter.budget());
}

StatusOr<Value> DictItems(Interpreter& interpreter, const Value& self, const Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries) {
    items.push_back(Value::Tuple({key, value}, interpreter.budget()));
  }
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(items.size()));
  return Value::List(std::move(items), interpreter.budget());
}

StatusOr<Value> Copy(Interpreter&, const Value& self, const Arguments&) {
  return self;
}

StatusOr<Value> ListCount(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("count", arguments, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    BATON_ASSIGN_OR_RETURN(const bool equal, PaidEqual(item, bound[0], interpreter.budget()));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

StatusOr<Value> ListIndex(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("index", arguments, {"value"}, 1));
  for (size_t i = 0; i < self.items().size(); ++i) {
    BATON_ASSIGN_OR_RETURN(const bool equal,
                           PaidEqual(self.items()[i], bound[0], interpreter.budget()));
    if (equal) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("index(): the list does not hold the value");
}

StatusOr<Value> LoopCycle(Interpreter&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) return InvalidArgument("loop.cycle() needs values");
  return arguments.positional[self.loop().index % arguments.positional.size()];
}

StatusOr<Value> LoopChanged(Interpreter& interpreter,
                            const Value& self,
                            const Arguments& arguments) {
  LoopObject& loop = self.loop();
  bool same =
      loop.last_changed.has_value() && loop.last_changed->size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(
        same, PaidEqual((*loop.last_changed)[i], arguments.positional[i], interpreter.budget()));
  }
  for (const Value& value : arguments.positional) {
    if (value.is_loop() || value.is_function())
      return InvalidArgument("loop.changed() compares plain values");
  }
  loop.last_changed = arguments.positional;
  return Value::Bool(!same);
}

using Table = absl::flat_hash_map<std::string, Method>;

const Table& DictMethods() {
  static const Table table = {{"get", DictGet},
                              {"keys", DictKeys},
                              {"values", DictValues},
                              {"items", DictItems},
                              {"copy", Copy}};
  return table;
}
const Table& ListMethods() {
  static const Table table = {{"count", ListCount}, {"index", ListIndex}, {"copy", Copy}};
  return table;
}
const Table& LoopMethods() {
  static const Table table = {{"cycle", LoopCycle}, {"changed", LoopChanged}};
  return table;
}

Method Find(const Value& object, const std::string& name) {
  const auto look = [&name](const Table& table) -> Method {
    const auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
  };
  if (object.is_string()) return FindStringMethod(name);
  if (object.is_dict()) return look(DictMethods());
  if (object.is_sequence()) return look(ListMethods());
  if (object.is_loop()) return look(LoopMethods());
  return nullptr;
}

}  // namespace

bool IsHiddenMethod(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
  return std::ranges::count(kNames, name) > 0;
}

std::optional<Value> FindMethod(const Value& object, const std::string& name) {
  const Method method = Find(object, name);
  if (method == nullptr) return std::nullopt;
  auto function = std::make_shared<FunctionObject>();
  function->name = name;
  function->extent.Include(object.extent());
  function->call = [object, method](Interpreter& interpreter,
                                    const Arguments& arguments) -> StatusOr<Value> {
    if (object.is_string()) {  // every method may read the whole string
      BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(object.text().size()));
    }
    return method(interpreter, object, arguments);
  };
  return Value::Function(std::move(function));
}

}  // namespace baton::jinja
