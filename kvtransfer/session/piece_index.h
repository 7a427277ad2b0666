#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/messages/messages.h"

namespace baton {

// Numbers the pieces of a granted hand-off, a piece being one block of tokens on one link:
// link-major, in block order. A link has the blocks that are owed in its cache group. A state is
// the last block of tokens on the links of its cache group.
class PieceIndex final {
 public:
  PieceIndex() = default;
  // `cached`: Grant::cached_blocks, at most owed.count.
  PieceIndex(const OwedBlocks& owed, uint32_t cached, std::span<const LinkGroups> links);

  uint32_t links() const { return static_cast<uint32_t>(links_.size()); }
  size_t total() const { return total_; }
  // The number of blocks on a link.
  uint32_t blocks(uint32_t link) const { return links_[link].blocks; }
  // The piece of block `index` of those on `link`.
  size_t at(uint32_t link, uint32_t index) const { return links_[link].first_piece + index; }
  // The first block of tokens on a link.
  uint32_t first_block(uint32_t link) const { return links_[link].first_block; }

 private:
  struct Link {
    size_t first_piece = 0;
    uint32_t first_block = 0;
    uint32_t blocks = 0;
  };
  std::vector<Link> links_;
  size_t total_ = 0;
};

}  // namespace baton
