#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/extent.h"
#include "common/text/jinja/marked_text.h"

namespace baton::jinja {

class Value;
struct Arguments;
struct DictObject;
struct FunctionObject;
struct ListObject;
struct LoopObject;
struct NamespaceObject;
struct StringObject;

struct NoneType {};
// The result of a look-up that found nothing; `what` describes the missing thing for errors.
struct UndefinedType {
  std::shared_ptr<const std::string> what;
};

// A value of the template language, with Python's types. Strings, lists, tuples and dicts never
// change after they are made (Hugging Face runs templates in an immutable sandbox). Cheap to copy.
class Value final {
 public:
  Value() = default;  // undefined
  static Value Undefined(std::string what);
  static Value None() { return Value(NoneType{}); }
  static Value Bool(bool value) { return Value(value); }
  static Value Int(int64_t value) { return Value(value); }
  static Value Float(double value) { return Value(value); }
  // The memory is charged to `budget`. It is null for the literals of the template itself, which
  // are not charged.
  static Value String(MarkedText text, Budget* budget);
  static Value List(std::vector<Value> items, Budget& budget) {
    return Make(std::move(items), false, budget);
  }
  static Value Tuple(std::vector<Value> items, Budget& budget) {
    return Make(std::move(items), true, budget);
  }
  static Value Dict(std::shared_ptr<const DictObject> o) { return Value(std::move(o)); }
  static Value Namespace(std::shared_ptr<NamespaceObject> o) { return Value(std::move(o)); }
  static Value Function(std::shared_ptr<const FunctionObject> o) { return Value(std::move(o)); }
  static Value Loop(std::shared_ptr<LoopObject> o) { return Value(std::move(o)); }

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

  // Each accessor requires a value of its type.
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return is_bool() ? as_bool() : std::get<int64_t>(data_); }
  double as_float() const;  // for any number
  const MarkedText& text() const;
  const std::string& str() const { return text().text(); }
  const std::vector<Value>& items() const;
  const DictObject& dict() const { return *std::get<std::shared_ptr<const DictObject>>(data_); }
  NamespaceObject& ns() const { return *std::get<std::shared_ptr<NamespaceObject>>(data_); }
  const FunctionObject& function() const {
    return *std::get<std::shared_ptr<const FunctionObject>>(data_);
  }
  LoopObject& loop() const { return *std::get<std::shared_ptr<LoopObject>>(data_); }
  // Describes the missing thing: "'tools' is undefined".
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

// The extent of a container of `items`.
Extent ExtentOf(const std::vector<Value>& items);

// ResourceExhausted when `value` is nested too deeply for recursion, or too large.
Status CheckExtent(const Value& value);

}  // namespace baton::jinja
