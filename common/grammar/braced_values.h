#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/grammar/marked_formats.h"
#include "common/grammar/value_rules.h"

namespace baton {

// Values that state their types themselves: objects in braces and arrays in brackets.
class BracedValues final : public ValueRules {
 public:
  enum class Syntax : uint8_t {
    // {key:71,other:[true,<|"|>a<|"|>,None]}: bare keys in the order of the alphabet, as the
    // template sorts them, and strings between marks, without escapes.
    kGemma,
    kJson,  // {"key": 71}; strings have no '<', so no marker
  };

  // `tool` and `rules` outlive the object.
  BracedValues(Syntax syntax,
               const MarkedFormats& formats,
               const CallableTool& tool,
               EbnfRules& rules);

 private:
  std::string Free(const At& at) override;
  StatusOr<std::string> Constant(const Json& value, const At& at) override;
  std::string String(const Json& schema, const At& at) override;
  std::string Scalar(std::string expression, ValueTypes, const At&) override { return expression; }
  std::string Null(const At&) override { return json_ ? "\"null\"" : "\"None\""; }
  StatusOr<std::string> Object(const Json& schema, const At& at) override;
  StatusOr<std::string> Array(const Json& schema, const At& at) override;

  std::string_view separator() const { return json_ ? ", " : ","; }
  // A string of the inside `text`.
  std::string Marked(std::string_view text) const;
  StatusOr<std::string> Key(std::string_view name) const;
  std::string UndeclaredKey(const std::optional<std::string>& pattern) const;
  StatusOr<std::string> ConstantObject(const Json& value);
  std::string ConstantString(const std::string& text) const;
  // The inside of a string without a pattern.
  std::string AnyText();

  const bool json_;
  const std::string mark_;                   // around strings
  const std::vector<std::string> excluded_;  // what no string of Gemma contains
  std::string free_;                         // the rule of any value, once it is needed
};

}  // namespace baton
