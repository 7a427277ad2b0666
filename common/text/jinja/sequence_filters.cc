#include <algorithm>

#include <absl/container/flat_hash_map.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/builtin_tests.h"
#include "common/text/jinja/compare.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

using Values = std::vector<Value>;

// The part of `item` that an `attribute` argument selects: a name, names separated by dots, or an
// index. The item itself when the argument is missing.
StatusOr<Value> SelectAttribute(Interpreter& interpreter, Value item, const Value& attribute) {
  if (attribute.is_undefined() || attribute.is_none()) return item;
  if (!attribute.is_string()) return interpreter.Item(item, attribute);
  BATON_ASSIGN_OR_RETURN(const auto parts,
                         Split(attribute.str(), ".", -1, false, interpreter.budget()));
  for (const TextSpan& part : parts) {
    const std::string name = attribute.str().substr(part.begin, part.end - part.begin);
    const bool index = !name.empty() && name.size() < 10 &&
                       name.find_first_not_of("0123456789") == std::string::npos;
    const Value key = index ? Value::Int(std::stoll(name)) : interpreter.NewString(name, true);
    BATON_ASSIGN_OR_RETURN(item, interpreter.Item(item, key));
  }
  return item;
}

// The key that sort, unique, min and max compare: in lower case unless `case_sensitive`.
StatusOr<Value> SortKey(Interpreter& interpreter,
                        const Value& item,
                        const Value& attribute,
                        bool case_sensitive) {
  BATON_ASSIGN_OR_RETURN(Value key, SelectAttribute(interpreter, item, attribute));
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(key.extent().weight));
  if (case_sensitive || !key.is_string()) return key;
  return interpreter.NewString(ChangeCase(key.text(), LetterCase::kLower));
}

using Keyed = std::vector<std::pair<Value, Value>>;  // key, item

StatusOr<Keyed> WithKeys(Interpreter& interpreter,
                         const Values& items,
                         const Value& attribute,
                         bool case_sensitive) {
  Keyed keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) {
    BATON_ASSIGN_OR_RETURN(Value key, SortKey(interpreter, item, attribute, case_sensitive));
    keyed.emplace_back(std::move(key), item);
  }
  return keyed;
}

// Sorts stably by key. Returns the error of the first comparison that fails.
Status SortByKey(Interpreter& interpreter, Keyed& keyed, bool reverse) {
  Status failed = OkStatus();
  const auto less = [&](const auto& a, const auto& b) {
    const Status paid =
        interpreter.budget().Spend(1 + std::min(a.first.extent().weight, b.first.extent().weight));
    if (failed.ok() && !paid.ok()) failed = paid;
    if (!failed.ok())
      return false;  // after an error all items compare as equal, so that the sort ends
    const auto result = reverse ? Less(b.first, a.first) : Less(a.first, b.first);
    if (!result.ok()) failed = result.status();
    return result.ok() && *result;
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  return failed;
}

StatusOr<Value> First(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

StatusOr<Value> Last(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

StatusOr<Value> Length(Interpreter& interpreter, const Value& input, const Arguments&) {
  size_t length = 0;
  if (input.is_string()) {
    BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(input.text().size()));
    length = CountCodePoints(input.str());
  } else if (input.is_sequence()) {
    length = input.items().size();
  } else if (input.is_dict()) {
    length = input.dict().entries.size();
  } else if (!input.is_undefined()) {
    return InvalidArgument("a {} has no length", input.type_name());
  }
  return Value::Int(static_cast<int64_t>(length));
}

StatusOr<Value> List(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(Values items, interpreter.Iterate(input));
  return Value::List(std::move(items), interpreter.budget());
}

StatusOr<Value> Join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("join", arguments, {"d", "attribute"}));
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  MarkedText separator;
  if (bound.Has(0)) {
    BATON_ASSIGN_OR_RETURN(separator, ToText(bound[0], interpreter.budget()));
  }
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(const Value item, SelectAttribute(interpreter, items[i], bound[1]));
    BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(item, interpreter.budget()));
    if (i > 0) out.Append(separator);
    out.Append(text);
    BATON_RETURN_IF_ERROR(interpreter.budget().SpendOnBytes(separator.size() + text.size()));
    BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(out.memory()));
  }
  return interpreter.NewString(std::move(out));
}

StatusOr<Value> Reverse(Interpreter& interpreter, const Value& input, const Arguments&) {
  if (input.is_string()) {
    const auto size = static_cast<int64_t>(CountCodePoints(input.str()));
    const SliceRange range = SliceOf(std::nullopt, std::nullopt, -1, size);
    BATON_ASSIGN_OR_RETURN(MarkedText text,
                           SliceText(input.text(), size, range, interpreter.budget()));
    return interpreter.NewString(std::move(text));
  }
  BATON_ASSIGN_OR_RETURN(Values items, interpreter.Iterate(input));
  std::reverse(items.begin(), items.end());
  return Value::List(std::move(items), interpreter.budget());
}

Values Items(Keyed&& keyed) {
  Values items;
  items.reserve(keyed.size());
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

StatusOr<Value> Sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  BATON_ASSIGN_OR_RETURN(Keyed keyed, WithKeys(interpreter, items, bound[2], bound.Bool(1, false)));
  BATON_RETURN_IF_ERROR(SortByKey(interpreter, keyed, bound.Bool(0, false)));
  return Value::List(Items(std::move(keyed)), interpreter.budget());
}

StatusOr<Value> Unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound, BoundArguments::Bind("unique", arguments, {"case_sensitive", "attribute"}));
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  BATON_ASSIGN_OR_RETURN(Keyed keyed, WithKeys(interpreter, items, bound[1], bound.Bool(0, false)));
  Keyed kept;
  for (auto& entry : keyed) {
    bool known = false;
    for (size_t i = 0; !known && i < kept.size(); ++i) {
      BATON_ASSIGN_OR_RETURN(known, PaidEqual(kept[i].first, entry.first, interpreter.budget()));
    }
    if (!known) kept.push_back(std::move(entry));
  }
  return Value::List(Items(std::move(kept)), interpreter.budget());
}

template <bool kMax>
StatusOr<Value> Extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind(kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"}));
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  BATON_ASSIGN_OR_RETURN(const Keyed keyed,
                         WithKeys(interpreter, items, bound[1], bound.Bool(0, false)));
  if (keyed.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    BATON_ASSIGN_OR_RETURN(
        const bool better,
        kMax ? Less(keyed[best].first, keyed[i].first) : Less(keyed[i].first, keyed[best].first));
    if (better) best = i;
  }
  return keyed[best].second;
}

StatusOr<Value> Sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("sum", arguments, {"attribute", "start"}));
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  Value total = bound.Has(1) ? bound[1] : Value::Int(0);
  for (const Value& item : items) {
    BATON_ASSIGN_OR_RETURN(const Value part, SelectAttribute(interpreter, item, bound[0]));
    BATON_ASSIGN_OR_RETURN(total, Operate("+", total, part, interpreter.budget()));
    BATON_RETURN_IF_ERROR(CheckExtent(total));
  }
  return total;
}

// The arguments without the first `skipped` positional ones.
Arguments Rest(const Arguments& arguments, size_t skipped) {
  const auto& given = arguments.positional;
  const auto first = given.begin() + static_cast<ptrdiff_t>(std::min(skipped, given.size()));
  return {.positional = Values(first, given.end()), .named = arguments.named};
}

// As in jinja2, map, select, reject, selectattr and rejectattr return an empty list for any input
// that is falsy, even if it is none or a number.
StatusOr<Value> Map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!input.Truthy()) return Value::List({}, interpreter.budget());
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  Values out;
  const bool by_filter = !arguments.positional.empty();
  Arguments named{.positional = {}, .named = arguments.named};
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("map", by_filter ? Arguments() : named, {"attribute", "default"}));
  if (!by_filter && !bound.Has(0))
    return InvalidArgument("map needs a filter's name or an attribute");
  if (by_filter && !arguments.positional[0].is_string())
    return InvalidArgument("map needs a filter's name");
  for (const Value& item : items) {
    BATON_RETURN_IF_ERROR(interpreter.budget().Spend(1));
    auto mapped =
        by_filter
            ? ApplyFilter(interpreter, arguments.positional[0].str(), item, Rest(arguments, 1))
            : SelectAttribute(interpreter, item, bound[0]);
    if (!mapped.ok()) return mapped;
    out.push_back(mapped->is_undefined() && bound.Has(1) ? bound[1] : *std::move(mapped));
  }
  return Value::List(std::move(out), interpreter.budget());
}

// select, reject, selectattr and rejectattr: keeps the items for which the test returns `kWanted`.
template <bool kWanted, bool kByAttribute>
StatusOr<Value> Select(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!input.Truthy()) return Value::List({}, interpreter.budget());
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  const size_t first = kByAttribute ? 1 : 0;
  const auto& given = arguments.positional;
  constexpr const char* kName =
      kByAttribute ? (kWanted ? "selectattr" : "rejectattr") : (kWanted ? "select" : "reject");
  if (given.size() < first) return InvalidArgument("{} needs an attribute's name", kName);
  const bool has_test = given.size() > first;
  if (has_test && !given[first].is_string()) {
    return InvalidArgument("{} needs a test's name", kName);
  }
  const Arguments rest = Rest(arguments, first + 1);
  Values out;
  for (const Value& item : items) {
    BATON_RETURN_IF_ERROR(interpreter.budget().Spend(1));
    BATON_ASSIGN_OR_RETURN(const Value seen,
                           SelectAttribute(interpreter, item, kByAttribute ? given[0] : Value()));
    bool result = seen.Truthy();
    if (has_test) {
      BATON_ASSIGN_OR_RETURN(result, ApplyTest(interpreter, given[first].str(), seen, rest));
    }
    if (result == kWanted) out.push_back(item);
  }
  return Value::List(std::move(out), interpreter.budget());
}

// The pairs of key and value of a mapping. `filter`: the name of the filter, for errors.
StatusOr<Value> Pairs(Interpreter& interpreter, std::string_view filter, const Value& input) {
  Values out;
  if (!input.is_dict() && !input.is_undefined()) {
    return InvalidArgument("{} needs a mapping, not a {}", filter, input.type_name());
  }
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict().entries)
      out.push_back(Value::Tuple({key, value}, interpreter.budget()));
  }
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(out.size()));
  return Value::List(std::move(out), interpreter.budget());
}

StatusOr<Value> DictItems(Interpreter& interpreter, const Value& input, const Arguments&) {
  return Pairs(interpreter, "items", input);
}

StatusOr<Value> DictSort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  BATON_ASSIGN_OR_RETURN(const std::string by, bound.Text(1, "key"));
  if (by != "key" && by != "value")
    return InvalidArgument("dictsort by '{}'; it must be key or value", by);
  BATON_ASSIGN_OR_RETURN(const Value pairs, Pairs(interpreter, "dictsort", input));
  const Value attribute = Value::Int(by == "key" ? 0 : 1);
  BATON_ASSIGN_OR_RETURN(Keyed keyed,
                         WithKeys(interpreter, pairs.items(), attribute, bound.Bool(0, false)));
  BATON_RETURN_IF_ERROR(SortByKey(interpreter, keyed, bound.Bool(2, false)));
  return Value::List(Items(std::move(keyed)), interpreter.budget());
}

StatusOr<Value> GroupBy(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  BATON_ASSIGN_OR_RETURN(Keyed keyed, WithKeys(interpreter, items, bound[0], bound.Bool(2, false)));
  for (auto& entry : keyed) {
    if (entry.first.is_undefined() && bound.Has(1)) entry.first = bound[1];
  }
  BATON_RETURN_IF_ERROR(SortByKey(interpreter, keyed, false));
  Values groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    Values members;
    for (; end < keyed.size() && Equal(keyed[end].first, keyed[begin].first); ++end)
      members.push_back(keyed[end].second);
    BATON_ASSIGN_OR_RETURN(const Value shown, SelectAttribute(interpreter, members[0], bound[0]));
    groups.push_back(Value::Tuple({shown.is_undefined() ? keyed[begin].first : shown,
                                   Value::List(std::move(members), interpreter.budget())},
                                  interpreter.budget()));
    begin = end;
  }
  return Value::List(std::move(groups), interpreter.budget());
}

StatusOr<Value> Batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  BATON_ASSIGN_OR_RETURN(const int64_t size, bound.Int(0, 1));
  if (size < 1) return InvalidArgument("batch of {}; it must be at least 1", size);
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  Values batches;
  Values batch;
  const auto finish = [&] {
    batches.push_back(Value::List(std::exchange(batch, {}), interpreter.budget()));
  };
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) finish();
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (bound.Has(1) && !bound[1].is_none()) {
      BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(
          std::min<size_t>(static_cast<size_t>(size), SIZE_MAX / 64) * 32));
      batch.resize(static_cast<size_t>(size), bound[1]);
    }
    finish();
  }
  return Value::List(std::move(batches), interpreter.budget());
}

// Splits into `slices` lists of nearly equal length; `fill_with` is appended to the shorter lists.
StatusOr<Value> Slice(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("slice", arguments, {"slices", "fill_with"}, 1));
  BATON_ASSIGN_OR_RETURN(const int64_t slices, bound.Int(0, 1));
  if (slices < 1) return InvalidArgument("slice into {}; it must be at least 1", slices);
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  const auto count = static_cast<size_t>(slices);
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(count));
  BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(count * 2 * kShortStringBytes));
  const size_t each = items.size() / count;
  const size_t longer = items.size() % count;
  Values out;
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t end = begin + each + (i < longer ? 1 : 0);
    Values part(items.begin() + static_cast<ptrdiff_t>(begin),
                items.begin() + static_cast<ptrdiff_t>(end));
    if (bound.Has(1) && !bound[1].is_none() && i >= longer) part.push_back(bound[1]);
    out.push_back(Value::List(std::move(part), interpreter.budget()));
    begin = end;
  }
  return Value::List(std::move(out), interpreter.budget());
}

// Returns any item. The choice depends only on the time of the rendering and the number of earlier
// choices.
StatusOr<Value> Random(Interpreter& interpreter, const Value& input, const Arguments&) {
  BATON_ASSIGN_OR_RETURN(const Values items, interpreter.Iterate(input));
  if (items.empty()) return Value::Undefined("No random item, sequence was empty.");
  return items[interpreter.NextRandom() % items.size()];
}

}  // namespace

Filter FindSequenceFilter(const std::string& name) {
  static const absl::flat_hash_map<std::string, Filter> table = {
      {"first", First},
      {"last", Last},
      {"length", Length},
      {"count", Length},
      {"list", List},
      {"join", Join},
      {"reverse", Reverse},
      {"sort", Sort},
      {"unique", Unique},
      {"min", Extreme<false>},
      {"max", Extreme<true>},
      {"sum", Sum},
      {"map", Map},
      {"select", Select<true, false>},
      {"reject", Select<false, false>},
      {"selectattr", Select<true, true>},
      {"rejectattr", Select<false, true>},
      {"items", DictItems},
      {"dictsort", DictSort},
      {"groupby", GroupBy},
      {"batch", Batch},
      {"slice", Slice},
      {"random", Random}};
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace baton::jinja
