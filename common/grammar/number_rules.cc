#include "common/grammar/number_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Digits behind the first one of a number without bounds: far fewer than a double can have.
constexpr int kMaxDigits = 200;
// Digits behind the point of a number with bounds, where the bounds themselves have not more.
constexpr size_t kDigitsBehindPoint = 6;
constexpr size_t kMaxDigitsBehindPoint = 17;
constexpr double kMaxExact = 9007199254740992.0;  // 2^53
constexpr std::string_view kDigit = "[0-9]";

std::string AnyDigits(size_t least, size_t most) {
  return EbnfRepeat(kDigit, static_cast<int64_t>(least), static_cast<int64_t>(most));
}

bool AllAre(std::string_view digits, char digit) {
  return digits.find_first_not_of(digit) == std::string_view::npos;
}

std::string DigitsFrom(char first, char last) {
  if (first == last) return EbnfText(std::string_view(&first, 1));
  return fmt::format("[{}-{}]", first, last);
}

// Texts of digits between two others. `shorter`: a text that ends early means that zeros follow;
// else it has as many digits as the two.
std::string DigitsBetween(std::string_view low, std::string_view high, bool shorter) {
  if (low.empty()) return "\"\"";
  const size_t rest = low.size() - 1;
  if (AllAre(low, '0') && AllAre(high, '9')) return AnyDigits(shorter ? 0 : low.size(), low.size());
  std::vector<std::string> options;
  if (shorter && AllAre(low, '0')) options.emplace_back("\"\"");
  const auto add = [&](char first, char last, std::string_view from, std::string_view to) {
    options.push_back(DigitsFrom(first, last) + " " + DigitsBetween(from, to, shorter));
  };
  const std::string zeros(rest, '0');
  const std::string nines(rest, '9');
  if (low[0] == high[0]) {
    add(low[0], low[0], low.substr(1), high.substr(1));
    return EbnfChoice(options);
  }
  add(low[0], low[0], low.substr(1), nines);
  if (low[0] + 1 < high[0]) {
    add(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1), zeros, nines);
  }
  add(high[0], high[0], zeros, high.substr(1));
  return EbnfChoice(options);
}

// Whether `a` is less than `b`: whole numbers without leading zeros.
bool Less(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// Whole numbers from `low` to `high`, which have no sign and no leading zeros.
std::string WholeBetween(std::string_view low, std::string_view high) {
  if (Less(high, low)) return std::string(kNoText);
  if (low.size() == high.size()) return DigitsBetween(low, high, /*shorter=*/false);
  std::vector<std::string> options = {DigitsBetween(low, std::string(low.size(), '9'), false)};
  if (low.size() + 1 < high.size()) {
    options.push_back("[1-9] " + AnyDigits(low.size(), high.size() - 2));
  }
  options.push_back(DigitsBetween("1" + std::string(high.size() - 1, '0'), high, false));
  return EbnfChoice(options);
}

std::string IntegersBetween(int64_t low, int64_t high) {
  std::vector<std::string> options;
  const auto magnitude = [](int64_t value) {
    return std::to_string(value < 0 ? 0 - static_cast<uint64_t>(value)
                                    : static_cast<uint64_t>(value));
  };
  if (low < 0) {
    const std::string least = high < 0 ? magnitude(high) : "1";
    options.push_back("\"-\" " + WholeBetween(least, magnitude(low)));
  }
  if (high >= 0)
    options.push_back(WholeBetween(magnitude(std::max<int64_t>(low, 0)), magnitude(high)));
  return EbnfChoice(options);
}

// A number without its sign: the digits before and behind its point.
struct Decimal {
  std::string whole;
  std::string fraction;
};

bool Less(const Decimal& a, const Decimal& b) {
  if (a.whole != b.whole) return Less(std::string_view(a.whole), std::string_view(b.whole));
  return a.fraction < b.fraction;  // of the same size
}

// The next whole number, or with `up` false the one before.
std::string Neighbour(std::string digits, bool up) {
  size_t at = digits.size();
  while (at > 0 && digits[at - 1] == (up ? '9' : '0')) digits[--at] = up ? '0' : '9';
  if (at > 0) {
    digits[at - 1] = static_cast<char>(digits[at - 1] + (up ? 1 : -1));
  } else {
    digits = '1' + digits;
  }
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

Decimal DecimalOf(double value) {
  char buffer[1100];  // of the smallest double
  const auto end = std::to_chars(
      std::begin(buffer), std::end(buffer), std::abs(value), std::chars_format::fixed);
  const std::string_view text(buffer, end.ptr);
  const size_t point = std::min(text.find('.'), text.size());
  Decimal decimal = {std::string(text.substr(0, point)), {}};
  if (point < text.size()) decimal.fraction = text.substr(point + 1);
  return decimal;
}

// With `digits` behind the point; `up`: away from zero.
Decimal Rounded(Decimal decimal, size_t digits, bool up) {
  const bool more = decimal.fraction.size() > digits;
  const bool exact = !more || AllAre(std::string_view(decimal.fraction).substr(digits), '0');
  decimal.fraction.resize(digits, '0');
  if (exact || !up) return decimal;
  const std::string all = Neighbour(decimal.whole + decimal.fraction, /*up=*/true);
  const size_t whole =
      all.size() < decimal.whole.size() + digits ? decimal.whole.size() : all.size() - digits;
  const std::string padded = std::string(whole + digits - all.size(), '0') + all;
  return {padded.substr(0, whole), padded.substr(whole)};
}

// The fraction of a number, with its point, from one to another.
std::string FractionBetween(const std::string& low, const std::string& high) {
  std::vector<std::string> options;
  if (AllAre(low, '0')) options.emplace_back("\"\"");
  // At least one digit follows the point.
  for (char first = low[0]; first <= high[0]; ++first) {
    const std::string from = first == low[0] ? low.substr(1) : std::string(low.size() - 1, '0');
    const std::string to = first == high[0] ? high.substr(1) : std::string(low.size() - 1, '9');
    options.push_back(fmt::format("\".{}\" {}", first, DigitsBetween(from, to, true)));
  }
  return EbnfChoice(options);
}

std::string DecimalsBetween(const Decimal& low, const Decimal& high) {
  if (Less(high, low)) return std::string(kNoText);
  const std::string zeros(low.fraction.size(), '0');
  const std::string nines(low.fraction.size(), '9');
  const auto number = [](const std::string& whole, const std::string& fraction) {
    return whole == kNoText ? whole : whole + " " + fraction;
  };
  if (low.whole == high.whole) {
    return number(EbnfText(low.whole), FractionBetween(low.fraction, high.fraction));
  }
  const std::string between =
      WholeBetween(Neighbour(low.whole, /*up=*/true), Neighbour(high.whole, /*up=*/false));
  return EbnfChoice({number(EbnfText(low.whole), FractionBetween(low.fraction, nines)),
                     number(between, FractionBetween(zeros, nines)),
                     number(EbnfText(high.whole), FractionBetween(zeros, high.fraction))});
}

std::string NumbersBetween(double low, double high) {
  const size_t wanted = std::max(DecimalOf(low).fraction.size(), DecimalOf(high).fraction.size());
  const size_t digits = std::clamp(wanted, kDigitsBehindPoint, kMaxDigitsBehindPoint);
  const auto bound = [&](double value, bool up) { return Rounded(DecimalOf(value), digits, up); };
  Decimal smallest = {"0", std::string(digits, '0')};
  std::vector<std::string> options;
  if (high >= 0) {
    options.push_back(
        DecimalsBetween(low > 0 ? bound(low, /*up=*/true) : smallest, bound(high, /*up=*/false)));
  }
  smallest.fraction.back() = '1';
  if (low < 0) {
    const std::string negative =
        DecimalsBetween(high < 0 ? bound(high, /*up=*/true) : smallest, bound(low, /*up=*/false));
    if (negative != kNoText) options.push_back("\"-\" " + negative);
  }
  return EbnfChoice(options);
}

// The bound of one side, itself allowed; nothing where there is none. `inward` gives the bound that
// stands for a value as the schema has it, which may be exclusive.
template <class T, class Inward>
std::optional<T> BoundOf(const Json& schema, bool low, const Inward& inward) {
  std::optional<T> bound;
  for (const bool exclusive : {false, true}) {
    const char* const name = low ? (exclusive ? "exclusiveMinimum" : "minimum")
                                 : (exclusive ? "exclusiveMaximum" : "maximum");
    const auto found = schema.find(name);
    if (found == schema.end()) continue;
    const T value = inward(found->get<T>(), exclusive);
    if (!bound.has_value()) bound = value;
    bound = low ? std::max(*bound, value) : std::min(*bound, value);
  }
  return bound;
}

std::optional<double> NumberBound(const Json& schema, bool low) {
  return BoundOf<double>(schema, low, [low](double value, bool exclusive) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    // A large integer may have been rounded.
    const bool inner = exclusive || std::abs(value) > kMaxExact;
    return inner ? std::nextafter(value, low ? kInfinity : -kInfinity) : value;
  });
}

std::optional<int64_t> IntegerBound(const Json& schema, bool low) {
  return BoundOf<int64_t>(schema, low, [low](int64_t value, bool exclusive) {
    const int64_t end =
        low ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
    return exclusive && value != end ? value + (low ? 1 : -1) : value;
  });
}

// Of a few integers, their texts.
std::string MultiplesBetween(int64_t multiple, int64_t low, int64_t high) {
  std::vector<std::string> options;
  int64_t value = low / multiple * multiple;
  if (value < low) value += multiple;
  for (; value <= high; value += multiple) options.push_back(EbnfText(std::to_string(value)));
  return EbnfChoice(options);
}

// A rule for each remainder that the digits so far leave.
std::string Multiples(int64_t multiple, EbnfRules& rules) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < multiple; ++i) names.push_back(rules.Declare());
  const auto next = [&](int64_t remainder, int first) {
    std::vector<std::string> options;
    for (int digit = first; digit <= 9; ++digit) {
      const int64_t leaves = (remainder * 10 + digit) % multiple;
      options.push_back(fmt::format("\"{}\" {}", digit, names[static_cast<size_t>(leaves)]));
    }
    return options;
  };
  for (int64_t i = 0; i < multiple; ++i) {
    std::vector<std::string> options = next(i, 0);
    if (i == 0) options.insert(options.begin(), "\"\"");
    rules.Define(names[static_cast<size_t>(i)], EbnfChoice(options));
  }
  return fmt::format("(\"0\" | \"-\"? {})", EbnfChoice(next(0, 1)));
}

std::string Integers(const Json& schema, EbnfRules& rules) {
  const std::optional<int64_t> low = IntegerBound(schema, /*low=*/true);
  const std::optional<int64_t> high = IntegerBound(schema, /*low=*/false);
  const auto multiple = schema.value("multipleOf", int64_t{1});
  const bool bounded = low.has_value() && high.has_value();
  if (bounded && *low > *high) return std::string(kNoText);
  if (bounded) {
    return multiple == 1 ? IntegersBetween(*low, *high) : MultiplesBetween(multiple, *low, *high);
  }
  if (multiple != 1) return Multiples(multiple, rules);
  return fmt::format("(\"0\" | \"-\"? [1-9] [0-9]{{0,{}}})", kMaxDigits);
}

}  // namespace

std::string NumberExpression(const Json& schema, EbnfRules& rules) {
  std::string expression;
  if (schema["type"] == "integer") {
    expression = Integers(schema, rules);
  } else if (const auto low = NumberBound(schema, true), high = NumberBound(schema, false);
             low.has_value() && high.has_value()) {
    expression = NumbersBetween(*low, *high);
  } else {
    expression = fmt::format(
        "\"-\"? (\"0\" | [1-9] [0-9]{{0,{}}}) (\".\" [0-9]{{1,{}}})? ([eE] [+-]? [0-9]{{1,2}})?",
        kMaxDigits,
        kMaxDigits);
  }
  return expression == kNoText ? expression : rules.Add(expression);
}

}  // namespace baton
