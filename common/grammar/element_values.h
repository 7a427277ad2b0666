#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/chat_format/nested_types.h"
#include "common/grammar/braced_values.h"
#include "common/grammar/marked_formats.h"
#include "common/grammar/value_rules.h"

namespace baton {

// Values of MiniMax M3, as elements between tags with a token before each: an object has the tags
// of its members, an array has <item>s, and a text stands as it is. What a text is depends on what
// the client states of the value, as the parser reads it: a value that may be a string and
// something else is JSON, with quotation marks. JSON also writes an object whose names are not
// declared, because a grammar cannot make a closing tag repeat the name, and an empty value where
// an element without content would be another one.
class ElementValues final : public ValueRules {
 public:
  // `tool` and `rules` outlive the object.
  ElementValues(const MarkedFormats& formats, const CallableTool& tool, EbnfRules& rules);

  At Stated() const { return types_.Arguments(); }

 private:
  std::string Free(const At& at) override;
  StatusOr<std::string> Constant(const Json& value, const At& at) override;
  std::string String(const Json& schema, const At& at) override;
  std::string Scalar(std::string expression, ValueTypes type, const At& at) override;
  std::string Null(const At& at) override { return Scalar("\"null\"", ValueTypes::kNull, at); }
  StatusOr<std::string> Object(const Json& schema, const At& at) override;
  StatusOr<std::string> Array(const Json& schema, const At& at) override;
  StatusOr<std::string> Root(const Json& schema, const At& at) override;
  std::string Item(std::string value) override;

  // Whether the parser takes JSON of `type` for what it is, where the schemas `at` describe a
  // value.
  bool ReadsJson(ValueTypes type, const At& at);
  // Whether it takes an element without content for `empty`, which is JSON.
  bool ReadsNothing(std::string_view empty, const At& at);
  // Whether it takes an element with items for an array; else for an object.
  bool ReadsItems(const At& at);
  StatusOr<std::vector<Member>> DeclaredMembers(const Json& schema, const At& at, bool items);
  std::string Tag(std::string_view name, bool closing) const;
  StatusOr<std::string> Element(std::string_view name, std::string_view value) const;
  // An element with any name that means nothing else. Its tags may differ; the parser takes the
  // first.
  std::string UndeclaredElement(std::string_view value);
  // A text without a pattern.
  std::string AnyText() { return rules().Add(EbnfTextWithout(excluded_)); }
  bool IsWritable(std::string_view text) const;

  const std::string token_;                  // before each tag
  const std::vector<std::string> excluded_;  // what no text contains
  NestedTypes types_;
  BracedValues json_;
  std::string free_;  // the rule of any value, once it is needed
};

}  // namespace baton
