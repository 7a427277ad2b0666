#include "common/grammar/xgrammar/json_rules.h"

#include <grammar_builder.h>
#include <grammar_impl.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Range = xgrammar::GrammarBuilder::CharacterClassElement;

// Digits behind the first one, with which a number fits into a double, times the largest power of
// ten that is written. Far fewer than the bound and the bytes of a token, all counts share a mask.
constexpr int kMaxDigits = 200;

// Whether rules that stand in the grammar as text may have a name of one of XGrammar's own.
bool NamesOwnRules(const Json& part) {
  if (part.is_array()) return std::ranges::any_of(part, NamesOwnRules);
  if (!part.is_object()) return false;
  if (const auto text = part.find("grammar"); text != part.end() && text->is_string()) {
    return text->get_ref<const std::string&>().find("basic_") != std::string::npos;
  }
  return std::ranges::any_of(
      std::vector{"format", "content", "elements", "tags"},
      [&](const char* name) { return part.contains(name) && NamesOwnRules(part[name]); });
}

// Whether a rule has the name that XGrammar gives to one of its own, or that and a number.
bool IsNamed(std::string_view name, std::string_view own) {
  if (!name.starts_with(own)) return false;
  name.remove_prefix(own.size());
  return name.find_first_not_of("_0123456789") == std::string_view::npos;
}

class JsonRules {
 public:
  explicit JsonRules(xgrammar::Grammar& grammar)
      : rules_(xgrammar::GrammarBuilder::FromMutableGrammar(&grammar)) {}

  // \n, \u0041, \ud83d\ude00.
  void Escape(int32_t rule) {
    const std::vector<Range> hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    const int32_t digit = rules_.AddCharacterClass(hex);
    const int32_t u = rules_.AddByteString("u");
    Update(rule,
           {{rules_.AddCharacterClass({{'"', '"'},
                                       {'\\', '\\'},
                                       {'/', '/'},
                                       {'b', 'b'},
                                       {'f', 'f'},
                                       {'n', 'n'},
                                       {'r', 'r'},
                                       {'t', 't'}})},
            {u,
             rules_.AddCharacterClass({{'0', '9'}, {'A', 'C'}, {'a', 'c'}, {'E', 'F'}, {'e', 'f'}}),
             digit,
             digit,
             digit},
            {u, D(), rules_.AddCharacterClass({{'0', '7'}}), digit, digit},
            {u,
             D(),
             rules_.AddCharacterClass({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}),
             digit,
             digit,
             rules_.AddByteString("\\u"),
             D(),
             rules_.AddCharacterClass({{'C', 'F'}, {'c', 'f'}}),
             digit,
             digit}});
  }

  void Integer(int32_t rule) { Update(rule, {{Zero()}, {Sign(), First(), Digits()}}); }

  void Number(int32_t rule) {
    Update(rule,
           {{Sign(), Zero(), Fraction(), Exponent()},
            {Sign(), First(), Digits(), Fraction(), Exponent()}});
  }

 private:
  // The body of a rule: choices, each a sequence; `optional`: or nothing.
  int32_t Choices(const std::vector<std::vector<int32_t>>& choices, bool optional) {
    std::vector<int32_t> sequences;
    if (optional) sequences.push_back(rules_.AddEmptyStr());
    for (const auto& choice : choices) sequences.push_back(rules_.AddSequence(choice));
    return rules_.AddChoices(sequences);
  }

  void Update(int32_t rule, const std::vector<std::vector<int32_t>>& choices) {
    rules_.UpdateRuleBody(rule, Choices(choices, /*optional=*/false));
  }

  int32_t Optional(std::string_view name, const std::vector<std::vector<int32_t>>& choices) {
    const int32_t body = Choices(choices, /*optional=*/true);
    return rules_.AddRuleRef(rules_.AddRuleWithHint(std::string(name), body));
  }

  int32_t D() { return rules_.AddCharacterClass({{'D', 'D'}, {'d', 'd'}}); }
  int32_t First() { return rules_.AddCharacterClass({{'1', '9'}}); }
  int32_t Digit() { return rules_.AddCharacterClass({{'0', '9'}}); }

  int32_t Zero() { return rules_.AddByteString("0"); }

  int32_t Digits() {
    if (digit_rule_ < 0) {
      digit_rule_ = rules_.AddRuleWithHint("json_digit", Choices({{Digit()}}, /*optional=*/false));
    }
    return rules_.AddRepeat(digit_rule_, 0, kMaxDigits);
  }

  int32_t Sign() {
    if (sign_ < 0) sign_ = Optional("json_sign", {{rules_.AddByteString("-")}});
    return sign_;
  }

  int32_t Fraction() {
    if (fraction_ < 0) {
      const int32_t digits = rules_.AddCharacterClassStar({{'0', '9'}});
      fraction_ = Optional("json_fraction", {{rules_.AddByteString("."), Digit(), digits}});
    }
    return fraction_;
  }

  int32_t Exponent() {
    if (exponent_ >= 0) return exponent_;
    const int32_t e = rules_.AddCharacterClass({{'E', 'E'}, {'e', 'e'}});
    const int32_t sign =
        Optional("json_exponent_sign", {{rules_.AddCharacterClass({{'+', '+'}, {'-', '-'}})}});
    exponent_ = Optional("json_exponent", {{e, sign, Digit()}, {e, sign, Digit(), Digit()}});
    return exponent_;
  }

  xgrammar::GrammarBuilder rules_;
  // References to helper rules, once they are made.
  int32_t digit_rule_ = -1;
  int32_t sign_ = -1;
  int32_t fraction_ = -1;
  int32_t exponent_ = -1;
};

}  // namespace

void NarrowJsonRules(const Json& spec, xgrammar::Grammar& grammar) {
  if (NamesOwnRules(spec)) return;
  JsonRules rules(grammar);
  const int32_t count = grammar->NumRules();
  for (int32_t rule = 0; rule < count; ++rule) {
    const std::string name = grammar->GetRule(rule).name;
    if (IsNamed(name, "basic_escape")) rules.Escape(rule);
    if (IsNamed(name, "basic_integer")) rules.Integer(rule);
    if (IsNamed(name, "basic_number")) rules.Number(rule);
  }
}

}  // namespace baton
