#include "common/grammar/ebnf_rules.h"

#include <cstdint>
#include <set>

#include <fmt/format.h>

namespace baton {

std::string EbnfText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7F) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string EbnfChoice(const std::vector<std::string>& options) {
  std::vector<std::string_view> kept;
  std::set<std::string_view> known = {kNoText};
  for (const std::string& option : options) {
    if (known.insert(option).second) kept.push_back(option);
  }
  if (kept.empty()) return std::string(kNoText);
  if (kept.size() == 1) return std::string(kept[0]);
  return fmt::format("({})", fmt::join(kept, " | "));
}

std::string EbnfSequence(const std::vector<std::string>& parts, std::string_view between) {
  if (parts.empty()) return "\"\"";
  const std::string separator = between.empty() ? " " : fmt::format(" {} ", between);
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string EbnfRepeat(std::string_view expression, int64_t least, int64_t most) {
  if (most == 0) return "\"\"";
  if (least == 1 && most == 1) return std::string(expression);
  if (least == 0 && most == 1) return fmt::format("{}?", expression);
  if (most >= 0) return fmt::format("{}{{{},{}}}", expression, least, most);
  if (least <= 1) return fmt::format("{}{}", expression, least == 0 ? '*' : '+');
  return fmt::format("{}{{{},}}", expression, least);
}

std::string EbnfTextWithout(const std::vector<std::string>& excluded) {
  std::vector<std::string> texts;
  for (const std::string& text : excluded) texts.push_back(EbnfText(text));
  return fmt::format("TagDispatch(loop_after_dispatch=false, excludes=({}))",
                     fmt::join(texts, ", "));
}

std::string EbnfRules::Add(const std::string& expression) {
  const auto [found, added] = names_.try_emplace(expression);
  if (added) {
    found->second = Declare();
    Define(found->second, expression);
  }
  return found->second;
}

std::string EbnfRules::Declare() {
  return fmt::format("v{}", ++count_);
}

void EbnfRules::Define(const std::string& name, std::string_view expression) {
  text_ += fmt::format("{} ::= {}\n", name, expression);
}

std::string EbnfRules::Grammar(std::string_view root) const {
  return fmt::format("root ::= {}\n{}", root, text_);
}

}  // namespace baton
