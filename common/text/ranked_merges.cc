#include "common/text/ranked_merges.h"

#include <cstdint>
#include <string_view>

#include "common/text/piece_table.h"

namespace baton {

void AddRankedMerges(size_t first, TokenizerSpec& spec) {
  PieceTable table(spec.pieces.size() - first);
  for (size_t i = first; i < spec.pieces.size(); ++i) {
    table.Insert(spec.pieces[i].bytes, static_cast<TokenId>(i));
  }
  for (size_t i = first; i < spec.pieces.size(); ++i) {
    const std::string_view bytes = spec.pieces[i].bytes;
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const TokenId left = table.Find(bytes.substr(0, cut));
      const TokenId right = left < 0 ? left : table.Find(bytes.substr(cut));
      if (right < 0) continue;
      const auto rank = static_cast<uint32_t>(i - first);
      spec.merges.push_back({left, right, static_cast<TokenId>(i), rank});
    }
  }
}

}  // namespace baton
