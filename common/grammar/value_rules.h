#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/chat_format/nested_types.h"
#include "common/grammar/call_arguments.h"
#include "common/grammar/ebnf_rules.h"

namespace baton {

// The values of a checked schema as expressions of EBNF, in the syntax of a subclass. A definition
// becomes a rule, so schemas may refer to themselves. What the syntax cannot write is kNoText, or
// an error where nothing is left. Not thread-safe.
class ValueRules {
 public:
  // How the parser of the format takes a value: what the client states of it.
  using At = NestedTypes::Schemas;

  // `tool` and `rules` outlive the object.
  ValueRules(const CallableTool& tool, EbnfRules& rules) : tool_(tool), rules_(rules) {}
  virtual ~ValueRules() = default;

  // The values of `schema`, a part of the tool's parameters. Errors: InvalidArgument.
  StatusOr<std::string> Value(const nlohmann::ordered_json& schema, const At& at);
  // The objects of `schema`, as the arguments of a call. Errors: as above.
  StatusOr<std::string> Arguments(const At& at);

 protected:
  using Json = nlohmann::ordered_json;

  struct Member {
    std::string name;
    std::string expression;  // of the name and the value
    bool required = false;
  };
  // The properties of an object whose names are not declared.
  struct Others {
    const Json* schema = nullptr;
    std::optional<std::string> name_pattern = {};  // of names as they stand in JSON
    int64_t least = 0;
    int64_t most = -1;
  };

  // Any value.
  virtual std::string Free(const At& at) = 0;
  virtual StatusOr<std::string> Constant(const Json& value, const At& at) = 0;
  virtual std::string String(const Json& schema, const At& at) = 0;
  // A number, a boolean or null, as `expression` writes it.
  virtual std::string Scalar(std::string expression, ValueTypes type, const At& at) = 0;
  virtual std::string Null(const At& at) = 0;
  virtual StatusOr<std::string> Object(const Json& schema, const At& at) = 0;
  virtual StatusOr<std::string> Array(const Json& schema, const At& at) = 0;
  // An object that is the arguments of a call.
  virtual StatusOr<std::string> Root(const Json& schema, const At& at) {
    return Object(schema, at);
  }

  // The undeclared properties of an object; nothing where it has declared ones only. Errors: for
  // counts of declared properties.
  StatusOr<std::optional<Others>> OthersOf(const Json& schema) const;
  // The members in order with `separator` between them. `empty`: there may be none.
  std::string Members(const std::vector<Member>& members, std::string_view separator, bool empty);
  // The items of an array with `separator` between them; there is at least one unless `empty`.
  StatusOr<std::string> Items(const Json& schema,
                              const At& item,
                              std::string_view separator,
                              bool empty);
  // An item, of the values that `value` writes.
  virtual std::string Item(std::string value) { return value; }

  Status Refuse(std::string_view why) const;
  Status RefuseName(std::string_view name, std::string_view why) const;
  const Json& whole() const { return tool_.parameters; }
  EbnfRules& rules() { return rules_; }

 private:
  Status Count();
  StatusOr<std::string> Reference(const std::string& reference, const At& at);
  StatusOr<std::string> OneOf(const Json& schemas, const At& at);
  StatusOr<std::string> Typed(const Json& schema, const At& at);
  Status AddArguments(const Json& schema,
                      const At& at,
                      int depth,
                      std::vector<std::string>& alternatives);

  const CallableTool& tool_;
  EbnfRules& rules_;
  std::map<std::pair<std::string, At>, std::string> references_;  // names of rules
  int depth_ = 0;
  size_t visited_ = 0;
};

}  // namespace baton
