#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

// The parts of XGrammar's structural tags.
namespace baton {

inline nlohmann::ordered_json TextPart(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

// Any text with none of `excluded` in it.
inline nlohmann::ordered_json AnyTextPart(const std::vector<std::string>& excluded) {
  nlohmann::ordered_json part = {{"type", "any_text"}};
  if (!excluded.empty()) part["excludes"] = excluded;
  return part;
}

inline nlohmann::ordered_json TagPart(std::string_view begin,
                                      nlohmann::ordered_json content,
                                      std::string_view end) {
  return {{"type", "tag"}, {"begin", begin}, {"content", std::move(content)}, {"end", end}};
}

inline nlohmann::ordered_json SequencePart(nlohmann::ordered_json elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

inline nlohmann::ordered_json OptionalPart(nlohmann::ordered_json content) {
  return {{"type", "optional"}, {"content", std::move(content)}};
}

inline nlohmann::ordered_json OrPart(nlohmann::ordered_json elements) {
  if (elements.size() == 1) return std::move(elements[0]);
  return {{"type", "or"}, {"elements", std::move(elements)}};
}

}  // namespace baton
