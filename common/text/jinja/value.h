#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_text.h"

namespace baton::jinja {

class Interpreter;
class Value;
struct DictObject;
struct FunctionObject;
struct ListObject;
struct LoopObject;
struct NamespaceObject;
struct StringObject;

// How large a value is when written out in full. Work on whole values is bounded by it.
struct Extent {
  int depth = 0;      // levels of containers
  size_t weight = 1;  // values inside, and 1 for each 128 bytes of text

  // Takes in one item of the container that this is of.
  void Include(Extent item);
};

struct NoneType {};
// The result of looking up what is not there; `what` describes it for errors.
struct UndefinedType {
  std::shared_ptr<const std::string> what;
};

// What a template computes with: Python's values as Jinja sees them. Strings, lists, tuples and
// dicts never change after they are made (Hugging Face runs templates in an immutable sandbox).
// Cheap to copy.
class Value final {
 public:
  Value() = default;  // undefined
  static Value Undefined(std::string what);
  static Value None() { return Value(NoneType{}); }
  static Value Bool(bool value) { return Value(value); }
  static Value Int(int64_t value) { return Value(value); }
  static Value Float(double value) { return Value(value); }
  // Memory is charged to `budget`; without one, to nobody (the template's own literals).
  static Value String(MarkedText text, Budget* budget);
  static Value List(std::vector<Value> items, Budget& budget) {
    return Make(std::move(items), false, budget);
  }
  static Value Tuple(std::vector<Value> items, Budget& budget) {
    return Make(std::move(items), true, budget);
  }
  static Value Dict(std::shared_ptr<const DictObject> dict) { return Value(std::move(dict)); }
  static Value Namespace(std::shared_ptr<NamespaceObject> object) {
    return Value(std::move(object));
  }
  static Value Function(std::shared_ptr<const FunctionObject> object) {
    return Value(std::move(object));
  }
  static Value Loop(std::shared_ptr<LoopObject> object) { return Value(std::move(object)); }

  bool is_undefined() const { return Is<UndefinedType>(); }
  bool is_none() const { return Is<NoneType>(); }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_float() const { return Is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }  // as in Python
  bool is_string() const { return Is<std::shared_ptr<const StringObject>>(); }
  bool is_sequence() const { return Is<std::shared_ptr<const ListObject>>(); }  // list or tuple
  bool is_tuple() const;
  bool is_dict() const { return Is<std::shared_ptr<const DictObject>>(); }
  bool is_namespace() const { return Is<std::shared_ptr<NamespaceObject>>(); }
  bool is_function() const { return Is<std::shared_ptr<const FunctionObject>>(); }
  bool is_loop() const { return Is<std::shared_ptr<LoopObject>>(); }

  // Each needs a value of its kind.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return is_bool() ? as_bool() : std::get<int64_t>(data_); }
  double as_float() const;  // of any number
  const MarkedText& text() const;
  const std::string& str() const { return text().text(); }
  const std::vector<Value>& items() const;
  const DictObject& dict() const { return *std::get<std::shared_ptr<const DictObject>>(data_); }
  NamespaceObject& ns() const { return *std::get<std::shared_ptr<NamespaceObject>>(data_); }
  const FunctionObject& function() const {
    return *std::get<std::shared_ptr<const FunctionObject>>(data_);
  }
  LoopObject& loop() const { return *std::get<std::shared_ptr<LoopObject>>(data_); }
  // What is missing, e.g. "'tools' is undefined".
  std::string UndefinedMessage() const;

  bool Truthy() const;
  // Python's name of the type, for errors.
  std::string_view type_name() const;
  Extent extent() const;

 private:
  using Data = std::variant<UndefinedType,
                            NoneType,
                            bool,
                            int64_t,
                            double,
                            std::shared_ptr<const StringObject>,
                            std::shared_ptr<const ListObject>,
                            std::shared_ptr<const DictObject>,
                            std::shared_ptr<NamespaceObject>,
                            std::shared_ptr<const FunctionObject>,
                            std::shared_ptr<LoopObject>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  static Value Make(std::vector<Value> items, bool tuple, Budget& budget);
  template <class T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }

  Data data_;
};

struct StringObject {
  MarkedText text;
  MemoryCharge charge;
};

struct ListObject {
  std::vector<Value> items;
  bool tuple;
  Extent extent;
  MemoryCharge charge;
};

// Keeps insertion order. Keys are strings, numbers, booleans or none.
struct DictObject {
  using Entry = std::pair<Value, Value>;

  static StatusOr<Value> Make(std::vector<Entry> entries, Budget& budget);
  std::optional<size_t> IndexOf(const Value& key) const;
  // Null when there is no such key.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  std::vector<Entry> entries;
  absl::flat_hash_map<std::string, size_t> by_text;  // of string keys
  Extent extent{.depth = 1};
  std::unique_ptr<MemoryCharge> charge;
};

struct NamespaceObject {
  absl::flat_hash_map<std::string, Value> attributes;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Anything callable: macros, methods bound to their object, global functions.
struct FunctionObject {
  std::string name;
  std::function<StatusOr<Value>(Interpreter&, const Arguments&)> call;
  Extent extent;  // of the object a method is bound to
};

struct LoopObject {
  std::vector<Value> items;
  Extent extent;
  size_t index = 0;
  int depth = 1;                                   // of loops in loops, as `loop.depth`
  std::optional<std::vector<Value>> last_changed;  // of loop.changed()
};

// Of a container of `items`.
Extent ExtentOf(const std::vector<Value>& items);

// ResourceExhausted when `value` is nested too deep for recursion, or too large.
Status CheckExtent(const Value& value);

}  // namespace baton::jinja
