#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat_format/chat_event.h"
#include "router/api/unclosed_json.h"

namespace baton::router {

// A stretch of one kind in the output of a chat.
struct ApiBlock {
  enum class Kind : uint8_t { kReasoning, kText, kCall };

  Kind kind = Kind::kText;
  std::string call_id = {};
  std::string name = {};  // of the tool
  std::string text = {};  // the text, or the call's arguments
  bool ended = false;     // nothing is added any more
  // False: the call failed, or the output was cut off in the block. The arguments of a call that is
  // not complete are never whole JSON.
  bool complete = true;
};

// The output of one chat sample, made from its events. Bodies show the blocks at the end, streams
// what was added to them so far (BlockWriter): both show the same. Text that is in a block stays.
//
// No client must run a call that failed (README.md). The last brace of the arguments therefore
// waits for the end of the call, and what fails gets an end that no parser completes
// (UnclosedJson). Only arguments that end because the output was cut off stay as they are. A call
// that fails before more than its first brace is known becomes text. Not thread-safe.
class OutputBlocks final {
 public:
  // `whole_calls`: a call becomes a block when it has ended. One that fails becomes text.
  explicit OutputBlocks(bool whole_calls = false) : whole_calls_(whole_calls) {}

  void Add(const ChatEvent& event);
  // No event follows. `cut`: the output was cut off, so the block under way is not complete.
  void End(bool cut);

  const std::vector<ApiBlock>& blocks() const { return blocks_; }

 private:
  void AddText(ApiBlock::Kind kind, std::string_view text);
  void AddArguments(std::string_view text);
  // Adds held_ and `text` to the block of the call under way.
  void ShowArguments(std::string_view text);
  void EndCall();
  void FailCall(const std::string& raw);
  void EndFailedCall(bool cut);
  void AddWaiting();
  void BeginBlock(ApiBlock block);
  void EndBlock(bool complete);

  bool whole_calls_;
  std::vector<ApiBlock> blocks_;
  bool in_call_ = false;
  bool failed_ = false;             // the last block is a call that failed and has not ended
  std::optional<ApiBlock> call_;    // the call under way while it has no block
  UnclosedJson shown_;              // the arguments of the call under way that are in its block
  std::string held_;                // the arguments that are not
  std::string tail_;                // the first bytes of a character whose rest follows as content
  std::vector<ChatEvent> waiting_;  // text that arrived inside of the call
};

}  // namespace baton::router
