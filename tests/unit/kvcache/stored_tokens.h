#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "common/kvcache/block_hash.h"
#include "common/kvcache/kv_cache.h"

// Tokens of a KvCache in tests.
namespace baton {

inline constexpr int32_t kBlockTokens = 4;

inline std::vector<TokenId> Tokens(int count, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// Stores all full blocks of `tokens`, whose KV is in `table`.
inline void StoreAll(KvCache& cache, Lease& table, const std::vector<TokenId>& tokens, bool adopt) {
  const auto hashes = BlockHashes(tokens, kBlockTokens, {});
  CacheEntryId parent = kRootEntry;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const auto block = std::span(tokens).subspan(i * kBlockTokens, kBlockTokens);
    const auto entry = cache.Store(table, static_cast<int32_t>(i), hashes[i], parent, block, adopt);
    ASSERT_TRUE(entry);
    parent = *entry;
  }
}

inline PrefixHit Match(const KvCache& cache,
                       const std::vector<TokenId>& tokens,
                       int32_t limit = 99) {
  return cache.Match(BlockHashes(tokens, kBlockTokens, {}), tokens, limit);
}

}  // namespace baton
