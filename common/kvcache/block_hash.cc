#include "common/kvcache/block_hash.h"

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "common/base/check.h"

namespace baton {
namespace {

static_assert(sizeof(Hash128) == 16 && sizeof(TokenId) == 4);

void AppendBytes(std::string& to, const void* from, size_t size) {
  to.append(static_cast<const char*>(from), size);
}

Hash128 RootOf(const HashDomain& domain) {
  std::string bytes;
  AppendBytes(bytes, &domain.model_fingerprint.high, sizeof(uint64_t));
  AppendBytes(bytes, &domain.model_fingerprint.low, sizeof(uint64_t));
  bytes.append(domain.cache_salt);
  return Xxh3Wide(std::as_bytes(std::span(bytes)), domain.secret);
}

}  // namespace

BlockHasher::BlockHasher(int32_t block_tokens, const HashDomain& domain)
    : block_tokens_(block_tokens), seed_(domain.secret), root_(RootOf(domain)) {
  BATON_CHECK(block_tokens >= 1, "a block of {} tokens", block_tokens);
}

void BlockHasher::Extend(std::span<const TokenId> tokens, std::vector<Hash128>& hashes) const {
  const size_t full = tokens.size() / block_tokens_;
  if (hashes.size() >= full) return;
  hashes.reserve(full);
  const size_t token_bytes = sizeof(TokenId) * block_tokens_;
  std::vector<std::byte> link(sizeof(Hash128) + token_bytes);
  Hash128 parent = hashes.empty() ? root_ : hashes.back();
  for (size_t block = hashes.size(); block < full; ++block) {
    std::memcpy(link.data(), &parent, sizeof(Hash128));
    std::memcpy(link.data() + sizeof(Hash128), tokens.data() + block * block_tokens_, token_bytes);
    parent = Xxh3Wide(link, seed_);
    hashes.push_back(parent);
  }
}

std::vector<Hash128> BlockHashes(std::span<const TokenId> tokens,
                                 int32_t block_tokens,
                                 const HashDomain& domain) {
  std::vector<Hash128> hashes;
  BlockHasher(block_tokens, domain).Extend(tokens, hashes);
  return hashes;
}

Hash128 SecretProbe(uint64_t secret, const BootId& boot) {
  if (secret == 0) return {};
  const std::string text = fmt::format("hash_secret of boot {}", boot);
  return Xxh3Wide(std::as_bytes(std::span(text)), secret);
}

}  // namespace baton
