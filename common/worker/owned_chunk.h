#pragma once

#include <vector>

#include "common/base/ids.h"
#include "common/engine/listener.h"

namespace baton {

// A chunk with copies of its blocks.
class OwnedChunk {
 public:
  explicit OwnedChunk(const KvChunk& chunk)
      : chunk_(chunk),
        blocks_(chunk.blocks.begin(), chunk.blocks.end()),
        state_(chunk.state.begin(), chunk.state.end()) {}

  KvChunk view() const {
    KvChunk view = chunk_;
    view.blocks = blocks_;
    view.state = state_;
    return view;
  }

 private:
  KvChunk chunk_;
  std::vector<BlockId> blocks_;
  std::vector<BlockId> state_;
};

}  // namespace baton
