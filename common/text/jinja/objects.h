#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_text.h"
#include "common/text/jinja/value.h"

// The objects that values point to. Only namespaces and loops change after they are made.

namespace baton::jinja {

class Interpreter;
class Scope;
struct Statement;

// Bytes that an object occupies beyond its own size: reference counts and allocator overhead.
constexpr size_t kObjectOverhead = 64;

struct StringObject {
  MarkedText text;
  MemoryCharge charge;
};

// Bytes that a list with a string of a few characters needs for this item.
constexpr size_t kShortStringBytes = sizeof(StringObject) + 2 * kObjectOverhead + sizeof(Value);

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
  absl::flat_hash_map<absl::string_view, size_t> by_text;  // index of each entry with a string key
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

// A callable: a macro, a method bound to its object, or a global function.
struct FunctionObject {
  std::string name;
  std::function<StatusOr<Value>(Interpreter&, const Arguments&)> call;
  Extent extent;  // includes the object that a method is bound to
};

struct LoopObject {
  std::vector<Value> items;
  Extent extent;
  size_t index = 0;
  int depth = 1;                                   // of nested calls of a recursive loop
  std::optional<std::vector<Value>> last_changed;  // arguments of the last loop.changed()
  // Set for a recursive loop, which can be called with further items: its `for` statement and the
  // scope around it.
  const Statement* recursive = nullptr;
  std::weak_ptr<Scope> around;
};

}  // namespace baton::jinja
