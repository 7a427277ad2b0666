#include "kvtransfer/session/piece_index.h"

namespace baton {

PieceIndex::PieceIndex(const OwedBlocks& owed, uint32_t cached, std::span<const LinkGroups> links) {
  links_.reserve(links.size());
  for (const LinkGroups& link : links) {
    const uint32_t first = owed.from(link.cache_group, cached);
    links_.push_back({total_, first, owed.count - first});
    total_ += owed.count - first;
  }
}

}  // namespace baton
