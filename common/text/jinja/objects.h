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

// What values hold. All but namespaces and loops never change after they are made.

namespace baton::jinja {

class Interpreter;
class Scope;
struct Statement;

// What an object takes beside its own size: the counts of its owners, and the allocator's share.
constexpr size_t kObjectOverhead = 64;

struct StringObject {
  MarkedText text;
  MemoryCharge charge;
};

// What a list takes for a string of a few characters in it.
constexpr size_t kShortStringBytes = sizeof(StringObject) + 2 * kObjectOverhead + sizeof(Value);

// Python's bytes, as str.encode gives them.
struct BytesObject {
  std::string bytes;
  bool trusted;
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
  absl::flat_hash_map<absl::string_view, size_t> by_text;  // of string keys, whose text it shows
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
  int depth = 1;                                   // of a recursive loop's calls
  std::optional<std::vector<Value>> last_changed;  // of loop.changed()
  // Of a recursive loop, which can be called with further items: what it runs, and where.
  const Statement* recursive = nullptr;
  std::weak_ptr<Scope> around;
};

}  // namespace baton::jinja
