#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "router/api/output_blocks.h"

namespace baton::router {

// Writes the blocks of one sample as they grow: what a stream shows of OutputBlocks. A character
// whose last bytes have not arrived waits for them. A subclass writes the events of its API. Not
// thread-safe.
class BlockWriter {
 public:
  virtual ~BlockWriter() = default;

  // Writes what was added to `blocks` since the last call.
  void Write(const std::vector<ApiBlock>& blocks);

 protected:
  // Numbers of blocks count from 0. `block.text` may be ahead of what OnText was called with.
  virtual void OnBegin(size_t number, const ApiBlock& block) = 0;
  virtual void OnText(size_t number, const ApiBlock& block, const std::string& text) = 0;
  virtual void OnEnd(size_t number, const ApiBlock& block) = 0;

 private:
  size_t number_ = 0;   // of the first block that was not written to its end
  bool begun_ = false;  // OnBegin was called for this block
  size_t written_ = 0;  // bytes of its text
};

}  // namespace baton::router
