#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/hash.h"
#include "common/base/ids.h"

namespace baton {

// What makes two equal token sequences share cached KV: the cluster's secret, the model, the
// tenant.
struct HashDomain {
  uint64_t secret = 0;
  Hash128 model_fingerprint;
  std::string_view cache_salt;
};

// The hashes of the full blocks of `tokens` (a partial last block has none): how the engine, the
// router and peers name cached prefixes. A chain, H(parent, token ids of the block): XXH3-128, its
// root seeded by the domain.
std::vector<Hash128> BlockHashes(std::span<const TokenId> tokens,
                                 int32_t block_tokens,
                                 const HashDomain& domain);

}  // namespace baton
