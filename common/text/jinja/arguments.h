#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// Pays for one look at the text of all `arguments`: what every function may take of them.
Status SpendOnArguments(const Arguments& arguments, Budget& budget);

// The arguments of a call, sorted into a function's parameters.
class BoundArguments final {
 public:
  // `names` are the parameters in order, the first `required` of which must be given.
  // InvalidArgument naming the function for arguments too many, missing or unknown.
  static StatusOr<BoundArguments> Bind(std::string_view function,
                                       const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       size_t required = 0);

  bool Has(size_t index) const { return given_[index]; }
  // Undefined when not given.
  const Value& operator[](size_t index) const { return values_[index]; }
  // Each gives `fallback` when the argument is missing, and InvalidArgument for one of another
  // type.
  StatusOr<int64_t> Int(size_t index, int64_t fallback) const;
  StatusOr<std::string> Text(size_t index, std::string_view fallback) const;
  bool Bool(size_t index, bool fallback) const;

 private:
  std::string function_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace baton::jinja
