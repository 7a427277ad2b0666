#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/chat_format/chat_event.h"
#include "common/chat_format/json_scanner.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// The format of gpt-oss, in which messages have headers: <|channel|>analysis<|message|>…<|end|>
// (https://cookbook.openai.com/articles/openai-harmony). The channel "analysis" is reasoning, a
// message to a recipient is a call, all else is content. Of several channels or recipients in a
// header the last one counts. A header without <|message|> is content. Text comes in whole
// characters. Not thread-safe.
class HarmonyParser final {
 public:
  struct Options {
    bool calls = true;      // false: messages to a recipient are content
    bool reasoning = true;  // false: the channel "analysis" is content
    std::shared_ptr<const ToolSchemas> tools = std::make_shared<ToolSchemas>();
    bool offered_only = false;  // ChatParserOptions
  };
  HarmonyParser(const Options& options, const SpecialMarkers& special);

  void Append(std::string_view text, ChatEvents& out);
  void Finish(ChatEvents& out);
  bool in_reasoning() const { return phase_ == Phase::kReasoning; }

 private:
  enum class Phase : uint8_t { kHeader, kContent, kReasoning, kCall };
  enum class Marker : uint8_t { kStart, kChannel, kConstrain, kMessage, kEnd, kCall, kReturn };

  void OnText(std::string_view text, ChatEvents& out);
  void OnMarker(Marker marker, std::string_view text, ChatEvents& out);
  // Whether the message under way goes on over `marker`, which is part of its text.
  bool IsText(Marker marker, std::string_view text) const;
  void AddToHeader(std::string_view text, ChatEvents& out);
  bool MayBeHeader();
  void OnHeaderMarker(Marker marker, std::string_view text, ChatEvents& out);
  // No message follows the header.
  void DropHeader(ChatEvents& out);
  std::string TakeHeader();
  std::string_view WordBehind(std::string_view sign) const;
  // Whether header_ is all header: other text in it is content.
  bool IsHeader() const;
  void BeginMessage(ChatEvents& out);
  void EndMessage(std::string_view marker, ChatEvents& out);
  void AddArguments(std::string_view text, ChatEvents& out);
  void FailCall(ChatEvents& out);

  const Options options_;
  const Markers markers_;  // in the order of Marker
  Phase phase_ = Phase::kHeader;
  std::string held_;         // may belong to a marker
  std::string header_;       // with its markers
  bool has_marker_ = false;  // in header_
  size_t spaces_ = 0;        // white space at the begin of header_, so that each byte is read once
  std::string raw_;          // all of the call under way
  JsonScanner arguments_;
  char first_ = 0;     // byte of the arguments
  std::string other_;  // arguments that are no object: maybe null
};

}  // namespace baton
