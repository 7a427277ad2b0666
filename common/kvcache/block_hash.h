#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/hash.h"
#include "common/base/ids.h"

namespace baton {

// Equal token sequences share cached KV only when these agree: the cluster's secret, the model and
// the tenant's salt.
struct HashDomain {
  uint64_t secret = 0;
  Hash128 model_fingerprint;
  std::string_view cache_salt;
};

// Names full blocks of tokens by a hash chain: hash = H(hash of the parent block, token ids of the
// block). H is XXH3-128 seeded with the cluster's secret. The parent of the first block is a root
// hash of the domain. Token ids are hashed as 32-bit little endian. Immutable, so thread-safe.
class BlockHasher final {
 public:
  BlockHasher(int32_t block_tokens, const HashDomain& domain);

  int32_t block_tokens() const { return block_tokens_; }
  const Hash128& root() const { return root_; }

  // `hashes` holds the hashes of the first blocks of `tokens`. Appends the hashes of all further
  // full blocks. A partial last block has no hash.
  void Extend(std::span<const TokenId> tokens, std::vector<Hash128>& hashes) const;

 private:
  int32_t block_tokens_;
  uint64_t seed_;
  Hash128 root_;
};

// Names a block's KV in the layers with a sliding window, of a model whose other layers keep all
// tokens: workers may hold the one without the other.
constexpr Hash128 WindowHash(const Hash128& block) {
  constexpr Hash128 kMark = {0x243f6a8885a308d3, 0x13198a2e03707344};  // digits of π
  return {block.high ^ kMark.high, block.low ^ kMark.low};
}

// The hashes of the full blocks of `tokens`. The engine, the router and peers name cached prefixes
// by them.
std::vector<Hash128> BlockHashes(std::span<const TokenId> tokens,
                                 int32_t block_tokens,
                                 const HashDomain& domain);

// A hash of `boot` keyed with the secret. Two processes compare it to prove that they have the same
// secret without sending the secret. Zero when `secret` is 0, which means that there is no secret.
Hash128 SecretProbe(uint64_t secret, const BootId& boot);

}  // namespace baton
