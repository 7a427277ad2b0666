#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/chat_event.h"
#include "common/chat_format/json_scanner.h"
#include "common/chat_format/markers.h"

namespace baton {

// The format of gpt-oss, in which messages have headers: <|channel|>analysis<|message|>…<|end|>
// (https://cookbook.openai.com/articles/openai-harmony). The channel "analysis" is reasoning, a
// message to a recipient is a call, all else is content. Not thread-safe.
class HarmonyParser final {
 public:
  struct Options {
    bool calls = true;      // false: messages to a recipient are content
    bool reasoning = true;  // false: the channel "analysis" is content
  };
  explicit HarmonyParser(const Options& options);

  void Append(std::string_view text, ChatEvents& out);
  void Finish(ChatEvents& out);
  bool in_reasoning() const { return phase_ == Phase::kReasoning; }

 private:
  enum class Phase : uint8_t { kHeader, kContent, kReasoning, kCall };

  void OnText(std::string_view text, ChatEvents& out);
  void AddToHeader(std::string_view text, ChatEvents& out);
  void OnMarker(std::string_view marker, ChatEvents& out);
  void BeginMessage(ChatEvents& out);
  void EndMessage(std::string_view marker, ChatEvents& out);
  void AddArguments(std::string_view text, ChatEvents& out);
  void FailCall(ChatEvents& out);

  const Options options_;
  const Markers markers_;
  Phase phase_ = Phase::kHeader;
  std::string held_;    // may belong to a marker
  std::string header_;  // with its markers
  size_t spaces_ = 0;   // white space at the begin of header_, so that each byte is read once
  std::string raw_;     // all of the call under way
  JsonScanner arguments_;
};

}  // namespace baton
