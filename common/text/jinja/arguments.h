#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/text/jinja/value.h"

namespace baton::jinja {

// Spends the cost of one pass over the text of all `arguments`. Every function may make such a pass
// without spending more.
Status SpendOnArguments(const Arguments& arguments, Budget& budget);

// The arguments of a call, assigned to a function's parameters.
class BoundArguments final {
 public:
  // `names` are the parameters in order; the first `required` of them must be given. Errors:
  // InvalidArgument that names the function, for too many, missing, repeated or unknown arguments.
  static StatusOr<BoundArguments> Bind(std::string_view function,
                                       const Arguments& arguments,
                                       std::initializer_list<std::string_view> names,
                                       size_t required = 0);

  bool Has(size_t index) const { return given_[index]; }
  // Undefined when the argument is not given.
  const Value& operator[](size_t index) const { return values_[index]; }
  // Each returns `fallback` when the argument is not given. Int and Text also do so for none, and
  // return InvalidArgument for an argument of another type.
  StatusOr<int64_t> Int(size_t index, int64_t fallback) const;
  StatusOr<std::string> Text(size_t index, std::string_view fallback) const;
  bool Bool(size_t index, bool fallback) const;

 private:
  std::string function_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace baton::jinja
