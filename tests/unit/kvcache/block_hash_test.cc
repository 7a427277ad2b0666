#include "common/kvcache/block_hash.h"

#include <set>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<TokenId> Tokens(int count, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(BlockHashTest, OnlyFullBlocksHaveOne) {
  EXPECT_TRUE(BlockHashes({}, 16, {}).empty());
  EXPECT_TRUE(BlockHashes(Tokens(15), 16, {}).empty());
  EXPECT_EQ(BlockHashes(Tokens(16), 16, {}).size(), 1u);
  EXPECT_EQ(BlockHashes(Tokens(47), 16, {}).size(), 2u);
}

TEST(BlockHashTest, NamesTheWholePrefix) {
  std::vector<TokenId> a = Tokens(64);
  std::vector<TokenId> b = a;
  b[3] += 1;
  const auto of_a = BlockHashes(a, 16, {});
  const auto of_b = BlockHashes(b, 16, {});
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(of_a[i], of_b[i]) << i;
  b = a;
  b[63] += 1;
  const auto of_end = BlockHashes(b, 16, {});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(of_a[i], of_end[i]) << i;
  EXPECT_NE(of_a[3], of_end[3]);
  // The same tokens at another position of the chain have another hash.
  const std::vector<TokenId> same(64, 5);
  const auto repeated = BlockHashes(same, 16, {});
  EXPECT_EQ(std::set(repeated.begin(), repeated.end()).size(), 4u);
}

TEST(BlockHashTest, EveryPartOfTheDomainCounts) {
  const HashDomain base = {1, {2, 3}, "salt"};
  std::set<Hash128> firsts;
  for (const HashDomain& domain : {base,
                                   HashDomain{9, {2, 3}, "salt"},
                                   HashDomain{1, {9, 3}, "salt"},
                                   HashDomain{1, {2, 9}, "salt"},
                                   HashDomain{1, {2, 3}, "other"},
                                   HashDomain{1, {2, 3}, ""}}) {
    firsts.insert(BlockHashes(Tokens(16), 16, domain)[0]);
  }
  EXPECT_EQ(firsts.size(), 6u);
  EXPECT_EQ(BlockHashes(Tokens(16), 16, base), BlockHashes(Tokens(16), 16, base));
}

TEST(BlockHashTest, ExtendingEqualsHashingAtOnce) {
  const auto tokens = Tokens(1000);
  const HashDomain domain = {7, {1, 2}, "tenant"};
  const BlockHasher hasher(16, domain);
  std::vector<Hash128> grown;
  for (size_t length = 0; length <= tokens.size(); length += 7) {
    hasher.Extend(std::span(tokens).first(length), grown);
    ASSERT_EQ(grown, BlockHashes(std::span(tokens).first(length), 16, domain));
  }
}

// These values must never change: routers and workers of different versions exchange them.
TEST(BlockHashTest, ValuesDoNotChange) {
  const auto hashes = BlockHashes(Tokens(32), 16, {0x1234, {0xAB, 0xCD}, "salt"});
  EXPECT_EQ(fmt::format("{}", hashes[0]), "935a67e82e88c6a5a91f0dcd0050dbf1");
  EXPECT_EQ(fmt::format("{}", hashes[1]), "096fcd024c690752b1b1715ca05c0349");
}

TEST(SecretProbeTest, TellsSecretsApartAndIsNothingWithoutOne) {
  EXPECT_EQ(SecretProbe(7, BootId(1)), SecretProbe(7, BootId(1)));
  EXPECT_NE(SecretProbe(7, BootId(1)), SecretProbe(8, BootId(1)));
  EXPECT_NE(SecretProbe(7, BootId(1)), SecretProbe(7, BootId(2)));  // prevents a replay
  EXPECT_NE(SecretProbe(7, BootId(1)), Hash128());
  EXPECT_EQ(SecretProbe(0, BootId(1)), Hash128());
}

}  // namespace
}  // namespace baton
