#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat_format/call_scanner.h"
#include "common/chat_format/chat_event.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/harmony_parser.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/reasoning_splitter.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

struct ChatParserOptions {
  ToolCallFormat calls = ToolCallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool in_reasoning = false;  // the prompt ends inside of the reasoning, see BeginsReasoning
  std::shared_ptr<const ToolSchemas> tools = std::make_shared<ToolSchemas>();
  // Only `tools` are called, also where a special token marks the call of another tool.
  bool offered_only = false;
  // The markers that are special tokens of the vocabulary: only AppendSpecial adds them.
  SpecialMarkers special = {};
};

// Divides the text that a chat model writes into content, reasoning and calls, as the text arrives.
// The events do not depend on how the text is divided, apart from the division of their own text.
// Nothing is lost but white space and markers around calls and reasoning: what is not a whole call
// becomes content. Holds back no more than the beginning of a marker, the part of a call before its
// arguments, and calls in reasoning that is not closed. Not thread-safe.
class ChatParser final {
 public:
  explicit ChatParser(const ChatParserOptions& options);

  // Text of ordinary tokens, in UTF-8. A piece may end within a character.
  std::vector<ChatEvent> Append(std::string_view text);
  // The text of a special token. Counts as ordinary text unless options.special has the token. The
  // end of a character that was cut off may stand before it.
  std::vector<ChatEvent> AppendSpecial(std::string_view text);
  // The events of what was held back. Call once, at the end.
  std::vector<ChatEvent> Finish();
  // Whether the text so far ends in the reasoning.
  bool in_reasoning() const;

 private:
  void AddWhole(std::string_view text);
  void AddRest(std::string_view text);
  void AddContent(std::string_view text);

  const SpecialMarkers special_;
  ChatEvents events_;
  std::string held_;  // the first bytes of a character
  std::optional<HarmonyParser> harmony_;
  std::optional<ReasoningSplitter> reasoning_;
  std::optional<MarkerRemover> content_markers_;  // of formats that have some
  std::optional<CallScanner> calls_;
};

}  // namespace baton
