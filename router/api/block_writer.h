#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/chat_format/chat_event.h"

namespace baton::router {

// A stretch of one kind in the output of a chat.
struct ApiBlock {
  enum class Kind : uint8_t { kReasoning, kText, kCall };

  Kind kind = Kind::kText;
  std::string call_id;
  std::string name;      // of the tool
  std::string text;      // the text, or the call's arguments
  bool complete = true;  // false: the call failed, or the output was cut off in the block
};

// Divides the events of one sample into blocks, for APIs whose streams name the begin and the end
// of each block. A subclass writes the events of its API. Not thread-safe.
class BlockWriter {
 public:
  virtual ~BlockWriter() = default;

  void Add(const ChatEvent& event);
  // Ends the block under way.
  void EndBlock(bool complete = true);

  // Numbers of blocks count from 0.
  const std::vector<ApiBlock>& blocks() const { return blocks_; }

 protected:
  virtual void OnBegin(size_t number, const ApiBlock& block) = 0;
  virtual void OnText(size_t number, const ApiBlock& block, const std::string& text) = 0;
  virtual void OnEnd(size_t number, const ApiBlock& block) = 0;

 private:
  void BeginBlock(ApiBlock block);
  void AddText(ApiBlock::Kind kind, const std::string& text);

  std::vector<ApiBlock> blocks_;
  bool open_ = false;  // the last block has not ended
};

}  // namespace baton::router
