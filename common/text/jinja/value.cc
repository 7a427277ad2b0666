#include "common/text/jinja/value.h"

#include <algorithm>

#include "common/text/jinja/compare.h"
#include "common/text/jinja/objects.h"

namespace baton::jinja {
namespace {

constexpr int kMaxValueDepth = 64;
constexpr size_t kMaxValueWeight = size_t{1} << 24;

absl::string_view Key(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

Value Value::Undefined(std::string what) {
  return Value(UndefinedType{std::make_shared<const std::string>(std::move(what))});
}

Value Value::String(MarkedText text, Budget* budget) {
  if (budget == nullptr) {
    return Value(std::shared_ptr<const StringObject>(new StringObject{std::move(text), {}}));
  }
  const size_t bytes = sizeof(StringObject) + kObjectOverhead + text.memory();
  return Value(std::shared_ptr<const StringObject>(
      new StringObject{std::move(text), MemoryCharge(*budget, bytes)}));
}

Value Value::Make(std::vector<Value> items, bool tuple, Budget& budget) {
  const Extent extent = ExtentOf(items);
  const size_t bytes = sizeof(ListObject) + kObjectOverhead + items.capacity() * sizeof(Value);
  return Value(std::shared_ptr<const ListObject>(
      new ListObject{std::move(items), tuple, extent, MemoryCharge(budget, bytes)}));
}

bool Value::is_tuple() const {
  return is_sequence() && std::get<std::shared_ptr<const ListObject>>(data_)->tuple;
}

double Value::as_float() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(as_int());
}

const MarkedText& Value::text() const {
  return std::get<std::shared_ptr<const StringObject>>(data_)->text;
}

const std::vector<Value>& Value::items() const {
  return std::get<std::shared_ptr<const ListObject>>(data_)->items;
}

std::string Value::UndefinedMessage() const {
  const auto& what = std::get<UndefinedType>(data_).what;
  return what == nullptr ? "a value is undefined" : *what;
}

bool Value::Truthy() const {
  if (is_bool() || is_int()) return as_int() != 0;
  if (is_float()) return as_float() != 0;
  if (is_string()) return text().size() > 0;
  if (is_sequence()) return !items().empty();
  if (is_dict()) return !dict().entries.empty();
  return !is_undefined() && !is_none();
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_sequence()) return is_tuple() ? "tuple" : "list";
  if (is_dict()) return "dict";
  if (is_namespace()) return "Namespace";
  if (is_loop()) return "LoopContext";
  return "function";
}

Extent Value::extent() const {
  if (is_string()) return {.weight = 1 + text().size() / 128};
  if (is_sequence()) return std::get<std::shared_ptr<const ListObject>>(data_)->extent;
  if (is_dict()) return dict().extent;
  if (is_loop()) return loop().extent;
  if (is_function()) return function().extent;
  return {};
}

StatusOr<Value> DictObject::Make(std::vector<Entry> entries, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.Spend(entries.size()));
  size_t searched = 0;  // number of keys that are not strings; these are searched linearly
  auto dict = std::make_shared<DictObject>();
  dict->entries.reserve(entries.size());
  for (Entry& entry : entries) {
    const Value& key = entry.first;
    if (!key.is_string() && !key.is_number() && !key.is_none()) {
      return InvalidArgument("a {} cannot be the key of a dict", key.type_name());
    }
    if (!key.is_string()) BATON_RETURN_IF_ERROR(budget.Spend(searched++ / 8));
    dict->extent.Include(entry.second.extent());
    if (const auto same = dict->IndexOf(key)) {
      dict->entries[*same].second = std::move(entry.second);
      continue;
    }
    if (key.is_string()) dict->by_text.emplace(Key(key.str()), dict->entries.size());
    dict->entries.push_back(std::move(entry));
  }
  constexpr size_t kBytesPerEntry = 3 * sizeof(Entry);
  dict->charge = std::make_unique<MemoryCharge>(
      budget, sizeof(DictObject) + kObjectOverhead + entries.size() * kBytesPerEntry);
  Value value = Value::Dict(std::move(dict));
  BATON_RETURN_IF_ERROR(CheckExtent(value));
  return value;
}

const Value* DictObject::Find(std::string_view key) const {
  const auto it = by_text.find(Key(key));
  return it == by_text.end() ? nullptr : &entries[it->second].second;
}

const Value* DictObject::Find(const Value& key) const {
  const auto index = IndexOf(key);
  return index ? &entries[*index].second : nullptr;
}

std::optional<size_t> DictObject::IndexOf(const Value& key) const {
  if (key.is_string()) {
    const auto it = by_text.find(Key(key.str()));
    if (it == by_text.end()) return std::nullopt;
    return it->second;
  }
  if (by_text.size() == entries.size()) return std::nullopt;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].first.is_string() && Equal(entries[i].first, key)) return i;
  }
  return std::nullopt;
}

void Extent::Include(Extent item) {
  depth = std::max(depth, item.depth + 1);
  weight = std::min(kMaxValueWeight, item.weight) + std::min(kMaxValueWeight, weight);
}

Extent ExtentOf(const std::vector<Value>& items) {
  Extent extent{.depth = 1};
  for (const Value& item : items) extent.Include(item.extent());
  return extent;
}

Status CheckExtent(const Value& value) {
  const Extent extent = value.extent();
  if (extent.depth <= kMaxValueDepth && extent.weight < kMaxValueWeight) return OkStatus();
  return MakeStatus(
      StatusCode::kResourceExhausted,
      "a {} is nested {} deep and holds {} values; at most {} deep and {} values are allowed",
      value.type_name(),
      extent.depth,
      extent.weight,
      kMaxValueDepth,
      kMaxValueWeight);
}

}  // namespace baton::jinja
