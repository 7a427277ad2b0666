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

// Names full blocks of tokens by a chain: H(parent's hash, token ids of the block), XXH3-128 seeded
// with the cluster's secret; the first block's parent is a root made of the whole domain. Token ids
// enter as 32-bit little endian. Immutable, so thread-safe.
class BlockHasher final {
 public:
  BlockHasher(int32_t block_tokens, const HashDomain& domain);

  int32_t block_tokens() const { return block_tokens_; }
  const Hash128& root() const { return root_; }

  // Appends to `hashes`, which names the first blocks of `tokens`, those of the full blocks that
  // follow. A partial last block has no hash.
  void Extend(std::span<const TokenId> tokens, std::vector<Hash128>& hashes) const;

 private:
  int32_t block_tokens_;
  uint64_t seed_;
  Hash128 root_;
};

// The hashes of the full blocks of `tokens`: how the engine, the router and peers name cached
// prefixes.
std::vector<Hash128> BlockHashes(std::span<const TokenId> tokens,
                                 int32_t block_tokens,
                                 const HashDomain& domain);

// Shows, without telling the secret, that two processes have the same: a hash of `boot` keyed with
// it. Zero for secret 0, which is none.
Hash128 SecretProbe(uint64_t secret, const BootId& boot);

}  // namespace baton
