#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace baton {

// A set of types of JSON values.
class ValueTypes final {
 public:
  constexpr ValueTypes() = default;
  static const ValueTypes kNone;
  static const ValueTypes kNull;
  static const ValueTypes kBoolean;
  static const ValueTypes kInteger;  // also 1.0
  static const ValueTypes kNumber;   // integers and others
  static const ValueTypes kString;
  static const ValueTypes kArray;
  static const ValueTypes kObject;
  static const ValueTypes kAll;

  constexpr bool operator==(const ValueTypes&) const = default;
  constexpr ValueTypes operator|(ValueTypes other) const { return ValueTypes(bits_ | other.bits_); }
  constexpr ValueTypes operator&(ValueTypes other) const { return ValueTypes(bits_ & other.bits_); }
  constexpr ValueTypes Without(ValueTypes other) const { return ValueTypes(bits_ & ~other.bits_); }
  constexpr bool Within(ValueTypes other) const { return (bits_ & ~other.bits_) == 0; }
  constexpr bool Has(ValueTypes other) const { return (bits_ & other.bits_) != 0; }

 private:
  explicit constexpr ValueTypes(int bits) : bits_(static_cast<uint8_t>(bits)) {}

  uint8_t bits_ = 0;
};

inline constexpr ValueTypes ValueTypes::kNone = {};
inline constexpr ValueTypes ValueTypes::kNull(1);
inline constexpr ValueTypes ValueTypes::kBoolean(2);
inline constexpr ValueTypes ValueTypes::kInteger(4);
inline constexpr ValueTypes ValueTypes::kNumber(12);
inline constexpr ValueTypes ValueTypes::kString(16);
inline constexpr ValueTypes ValueTypes::kArray(32);
inline constexpr ValueTypes ValueTypes::kObject(64);
inline constexpr ValueTypes ValueTypes::kAll(127);

// Null when `object` is not an object, or lacks the member.
const nlohmann::ordered_json* MemberOf(const nlohmann::ordered_json& object, const char* name);
// The name of the type that a keyword constrains; empty where it is not about one type.
std::string_view TypeOfKeyword(std::string_view name);
ValueTypes TypesOfNumber(double number);
ValueTypes TypesOfValue(const nlohmann::ordered_json& value);
// The part of the schema `root` to which a reference as "#/$defs/name" leads; null when there is
// none.
const nlohmann::ordered_json* TargetOf(const nlohmann::ordered_json& root,
                                       std::string_view reference);
// The schemas that `schema`, a part of `root`, refers to or combines: the target of $ref, and the
// branches of anyOf, oneOf and allOf.
std::vector<const nlohmann::ordered_json*> PartsOf(const nlohmann::ordered_json& root,
                                                   const nlohmann::ordered_json& schema);

// What a schema without `type` allows.
enum class Typeless : uint8_t {
  kAnything,  // what JSON schema says: keywords of one type let values of all others pass
  kImplied,   // values of the type that its keywords are about, as outputs under a grammar have
};

// Which types of values a JSON schema allows, as far as type, const, enum, anyOf, oneOf, allOf and
// $ref say. The schema comes from a client and need not be valid: what is not understood allows all
// types. Each definition is visited once.
class SchemaTypes final {
 public:
  // `root`: the whole schema, in which references lead. It outlives the object.
  explicit SchemaTypes(const nlohmann::ordered_json& root, Typeless typeless = Typeless::kAnything)
      : root_(root), typeless_(typeless) {}

  // `schema`: the whole or a part.
  ValueTypes Of(const nlohmann::ordered_json& schema) { return Of(schema, 0); }

 private:
  ValueTypes Of(const nlohmann::ordered_json& schema, int depth);
  bool ListsValues(const nlohmann::ordered_json& schema, int depth) const;
  ValueTypes OfTarget(const std::string& reference, int depth);
  ValueTypes OfBranches(const nlohmann::ordered_json& branches, bool all, int depth);

  const nlohmann::ordered_json& root_;
  const Typeless typeless_;
  std::map<std::string, ValueTypes> targets_;  // by reference
  std::unique_ptr<SchemaTypes> anything_;      // of schemas that list their values
};

}  // namespace baton
