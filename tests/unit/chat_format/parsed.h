// Outputs of models in tests, and what the parser makes of them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/chat_format/chat_parser.h"

namespace baton {

// A part of an output: text of ordinary tokens, or the text of one special token.
struct OutputPart {
  std::string text;
  bool special = false;
};

// `output`, in which ⟪…⟫ stands for a special token.
inline std::vector<OutputPart> PartsOf(std::string_view output) {
  constexpr std::string_view kBegin = "⟪";
  constexpr std::string_view kEnd = "⟫";
  std::vector<OutputPart> parts;
  while (!output.empty()) {
    const size_t begin = std::min(output.find(kBegin), output.size());
    if (begin > 0) parts.push_back({std::string(output.substr(0, begin))});
    if (begin == output.size()) break;
    const size_t end = output.find(kEnd, begin);
    const std::string_view token = output.substr(0, end).substr(begin + kBegin.size());
    parts.push_back({std::string(token), true});
    output.remove_prefix(end + kEnd.size());
  }
  return parts;
}

// `parts` with their text divided before each of its bytes for which `cut` returns true; it is
// given the number of the byte in all of the text.
template <typename Cut>
std::vector<OutputPart> Divided(const std::vector<OutputPart>& parts, Cut cut) {
  std::vector<OutputPart> out;
  size_t byte = 0;
  for (const OutputPart& part : parts) {
    if (part.special) {
      out.push_back(part);
      continue;
    }
    bool first = true;
    for (const char c : part.text) {
      if (first || cut(byte)) out.push_back({});
      out.back().text += c;
      first = false;
      ++byte;
    }
  }
  return out;
}

// Events, with texts of the same kind that follow each other joined.
inline void AddJoined(std::vector<ChatEvent> from, std::vector<ChatEvent>& to) {
  using Kind = ChatEvent::Kind;
  for (ChatEvent& event : from) {
    const bool is_text = event.kind == Kind::kContent || event.kind == Kind::kReasoning ||
                         event.kind == Kind::kArguments;
    if (is_text && !to.empty() && to.back().kind == event.kind) {
      to.back().text += event.text;
    } else {
      to.push_back(std::move(event));
    }
  }
}

inline std::vector<ChatEvent> ParsedParts(const ChatParserOptions& options,
                                          const std::vector<OutputPart>& parts) {
  ChatParser parser(options);
  std::vector<ChatEvent> events;
  for (const OutputPart& part : parts) {
    AddJoined(part.special ? parser.AppendSpecial(part.text) : parser.Append(part.text), events);
  }
  AddJoined(parser.Finish(), events);
  return events;
}

// All markers of the formats.
inline SpecialMarkers AllMarkersOf(const ChatParserOptions& options) {
  std::vector<std::string_view> markers = TokensOf(options.calls);
  const std::vector<std::string_view> reasoning = TokensOf(options.reasoning);
  markers.insert(markers.end(), reasoning.begin(), reasoning.end());
  return SpecialMarkers(std::move(markers));
}

}  // namespace baton
