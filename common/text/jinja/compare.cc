#include "common/text/jinja/compare.h"

#include <algorithm>

#include "common/text/jinja/objects.h"
#include "common/text/jinja/text_ops.h"

namespace baton::jinja {
namespace {

bool EqualDicts(const DictObject& a, const DictObject& b) {
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), [&b](const DictObject::Entry& entry) {
           const Value* other = b.Find(entry.first);
           return other != nullptr && Equal(entry.second, *other);
         });
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.as_float() == b.as_float();
    return a.as_int() == b.as_int();
  }
  if (a.is_string() && b.is_string()) return a.str() == b.str();
  if (a.is_sequence() && b.is_sequence()) {
    return a.is_tuple() == b.is_tuple() && a.items().size() == b.items().size() &&
           std::equal(a.items().begin(), a.items().end(), b.items().begin(), Equal);
  }
  if (a.is_dict() && b.is_dict()) return EqualDicts(a.dict(), b.dict());
  if (a.is_namespace() && b.is_namespace()) return &a.ns() == &b.ns();
  if (a.is_function() && b.is_function()) return &a.function() == &b.function();
  if (a.is_loop() && b.is_loop()) return &a.loop() == &b.loop();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

StatusOr<bool> Less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.as_float() < b.as_float();
    return a.as_int() < b.as_int();
  }
  if (a.is_string() && b.is_string()) return a.str() < b.str();
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equal(x[i], y[i])) return Less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  for (const Value& value : {a, b}) {
    if (value.is_undefined()) return InvalidArgument("{}", value.UndefinedMessage());
  }
  return InvalidArgument("a {} and a {} have no order", a.type_name(), b.type_name());
}

StatusOr<bool> PaidEqual(const Value& a, const Value& b, Budget& budget) {
  BATON_RETURN_IF_ERROR(budget.Spend(std::min(a.extent().weight, b.extent().weight)));
  return Equal(a, b);
}

StatusOr<bool> Contains(const Value& haystack, const Value& needle, Budget& budget) {
  if (haystack.is_string()) {
    if (!needle.is_string()) {
      return InvalidArgument("'in <string>' needs a string at its left, not a {}",
                             needle.type_name());
    }
    BATON_RETURN_IF_ERROR(budget.SpendOnBytes(haystack.str().size()));
    return FindText(haystack.str(), needle.str(), 0) != std::string_view::npos;
  }
  if (haystack.is_sequence()) {
    for (const Value& item : haystack.items()) {
      BATON_ASSIGN_OR_RETURN(const bool equal, PaidEqual(item, needle, budget));
      if (equal) return true;
    }
    return false;
  }
  if (haystack.is_dict()) return haystack.dict().Find(needle) != nullptr;
  if (haystack.is_undefined()) return false;
  return InvalidArgument("a {} cannot be searched with 'in'", haystack.type_name());
}

}  // namespace baton::jinja
