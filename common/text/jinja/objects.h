#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/status.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_text.h"
#include "common/text/jinja/value.h"

// What values hold. All but namespaces and loops never change after they are made.

namespace baton::jinja {

class Interpreter;

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

}  // namespace baton::jinja
