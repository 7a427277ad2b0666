#include "kernels/cuda/attention/decode_dispatch.h"

#include <vector>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

// The limits of an H200.
DecodeLimits Limits() {
  DecodeLimits limits;
  limits.device.architecture = limits.device.code_architecture = 90;
  limits.device.sm_count = 132;
  limits.device.block_shared_bytes = 227 << 10;
  limits.clusters = true;
  for (auto& active : limits.active_clusters) {
    active[0] = 66;
    active[1] = 31;
    active[2] = 14;
    active[3] = 8;
  }
  return limits;
}

// The shape of Llama 3.1 8B on a rank with `kv_heads` KV heads.
AttentionShape Shape(int32_t kv_heads = 8) {
  AttentionShape shape;
  shape.q_heads = 4 * kv_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = 128;
  return shape;
}

KvView View(const AttentionShape& shape, DType dtype = DType::kBF16) {
  KvView kv;
  kv.dtype = dtype;
  kv.kv_heads = shape.kv_heads;
  kv.head_dim = shape.head_dim;
  kv.block_tokens = 16;
  kv.head_stride = int64_t{16} * shape.head_dim * (dtype == DType::kFp8 ? 1 : 2);
  return kv;
}

// `count` rows that attend to `length` positions each.
struct Rows {
  int32_t count;
  int32_t length;
};

DecodeBatch RowsOf(const std::vector<Rows>& all, int32_t window = 0) {
  std::vector<AttentionSequence> singles;
  for (const Rows& rows : all) {
    for (int32_t i = 0; i < rows.count; ++i) singles.push_back({0, 0, 1, rows.length, 0});
  }
  return DecodeBatchOf(singles, window, static_cast<int32_t>(singles.size()));
}

DecodeKernel Choose(const std::vector<Rows>& rows, DType dtype = DType::kBF16) {
  return ChooseDecodeKernel({}, Limits(), Shape(), View(Shape(), dtype), RowsOf(rows));
}

// The kernel that was fastest on an H200 (bench/results/h200/attention_shares.jsonl,
// attention_long_rows.jsonl).
TEST(DecodeChoice, IsWhatWasFastest) {
  EXPECT_EQ(Choose({{1, 1024}}), DecodeKernel::kCluster);
  EXPECT_EQ(Choose({{1, 4096}}), DecodeKernel::kCluster);
  EXPECT_EQ(Choose({{1, 6144}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{1, 8192}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{2, 8192}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{1, 32768}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{1, 131072}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{4, 2000}}), DecodeKernel::kCluster);
  EXPECT_EQ(Choose({{8, 2048}}), DecodeKernel::kCluster);
  EXPECT_EQ(Choose({{16, 2048}}), DecodeKernel::kCluster);
  EXPECT_EQ(Choose({{24, 2048}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{64, 2048}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{256, 64}}), DecodeKernel::kStreamK);
}

TEST(DecodeChoice, OneLongRowAmongManyKeepsTheShares) {
  EXPECT_EQ(Choose({{32, 2300}, {1, 8192}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{60, 1024}, {2, 32768}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{32, 2300}, {1, 32768}}), DecodeKernel::kStreamK);
  EXPECT_EQ(Choose({{20, 300}, {1, 8192}}), DecodeKernel::kStreamK);
  // Where work tiles are short, combining many of them takes too long.
  EXPECT_EQ(Choose({{40, 10}, {1, 4000}}), DecodeKernel::kFlash2);
}

TEST(DecodeChoice, E4M3OfLongContextsGoesToClusters) {
  EXPECT_EQ(Choose({{64, 2048}}, DType::kFp8), DecodeKernel::kCluster);
  EXPECT_EQ(Choose({{256, 512}}, DType::kFp8), DecodeKernel::kStreamK);
}

TEST(DecodeChoice, FollowsWhatTheMachineAndTheShapeAllow) {
  DecodeLimits limits = Limits();
  const DecodeBatch rows = RowsOf({{64, 2048}});
  EXPECT_EQ(ChooseDecodeKernel({.deterministic = true}, limits, Shape(), View(Shape()), rows),
            DecodeKernel::kStreamK);
  // Stream-K has no code for this architecture.
  limits.device.architecture = limits.device.code_architecture = 100;
  EXPECT_EQ(ChooseDecodeKernel({}, limits, Shape(), View(Shape()), rows), DecodeKernel::kFlash2);
  EXPECT_EQ(ChooseDecodeKernel({}, limits, Shape(), View(Shape()), RowsOf({{1, 1024}})),
            DecodeKernel::kCluster);
  limits.clusters = false;
  for (const DecodeKernel asked : {DecodeKernel::kAuto, DecodeKernel::kCluster}) {
    EXPECT_EQ(
        ChooseDecodeKernel({.decode = asked}, limits, Shape(), View(Shape()), RowsOf({{1, 1024}})),
        DecodeKernel::kFlash2);
  }
  AttentionShape shape = Shape();
  shape.head_dim = 64;  // stream-K needs heads of 128
  const KvView kv = View(shape);
  EXPECT_NE(ChooseDecodeKernel({}, Limits(), shape, kv, rows), DecodeKernel::kStreamK);
  EXPECT_EQ(ChooseDecodeKernel({.decode = DecodeKernel::kStreamK}, Limits(), shape, kv, rows),
            DecodeKernel::kFlash2);
  EXPECT_EQ(ChooseDecodeKernel({.deterministic = true}, Limits(), shape, kv, rows),
            DecodeKernel::kCluster);
}

// A rank's KV heads are divided into groups of 8, 4, 2 or 1. Small groups share an SM, so that it
// has four consumer warps, and eight with KV in fp8.
TEST(DecodeChoice, DividesTheWorkAmongAllSms) {
  struct Expected {
    int32_t kv_heads, groups, tiles, tiles_of_fp8;
  };
  for (const Expected& expected : {Expected{8, 1, 132, 132},
                                   {32, 4, 33, 33},
                                   {4, 1, 132, 264},
                                   {12, 3, 44, 88},
                                   {2, 1, 264, 528},
                                   {6, 3, 88, 176},
                                   {1, 1, 528, 1056},
                                   {3, 3, 176, 352}}) {
    SCOPED_TRACE(expected.kv_heads);
    const AttentionShape shape = Shape(expected.kv_heads);
    EXPECT_EQ(StreamKHeadGroups(shape), expected.groups);
    EXPECT_EQ(StreamKTileCount(Limits(), HeadsOf(shape), View(shape)), expected.tiles);
    EXPECT_EQ(StreamKTileCount(Limits(), HeadsOf(shape), View(shape, DType::kFp8)),
              expected.tiles_of_fp8);
  }
}

// With few KV heads, too, stream-K serves many rows and very long ones.
TEST(DecodeChoice, UsesStreamKForFewHeads) {
  for (const int32_t kv_heads : {1, 2}) {
    SCOPED_TRACE(kv_heads);
    const AttentionShape shape = Shape(kv_heads);
    const auto choose = [&](const std::vector<Rows>& rows, DType dtype = DType::kBF16) {
      return ChooseDecodeKernel({}, Limits(), shape, View(shape, dtype), RowsOf(rows));
    };
    EXPECT_EQ(choose({{1, 1024}}), DecodeKernel::kCluster);
    EXPECT_EQ(choose({{1, 131072}}), DecodeKernel::kStreamK);
    EXPECT_EQ(choose({{256, 512}}), DecodeKernel::kStreamK);
    EXPECT_EQ(choose({{512, 2048}}), DecodeKernel::kStreamK);
    EXPECT_EQ(choose({{512, 2048}}, DType::kFp8), DecodeKernel::kCluster);
    EXPECT_EQ(choose({{512, 512}}, DType::kFp8), DecodeKernel::kStreamK);
  }
}

// A row's bits must not depend on the rows beside it.
TEST(DecodeChoice, DependsOnTheShapeAloneInDeterministicMode) {
  for (const DType dtype : {DType::kBF16, DType::kFp8}) {
    for (const DecodeBatch& rows : {RowsOf({{1, 1}}), RowsOf({{1, 131072}}), RowsOf({{512, 64}})}) {
      for (const int32_t kv_heads : {8, 6, 4, 2, 1}) {  // the same kernel at every parallel degree
        const AttentionShape shape = Shape(kv_heads);
        const KvView kv = View(shape, dtype);
        EXPECT_EQ(ChooseDecodeKernel({.deterministic = true}, Limits(), shape, kv, rows),
                  DecodeKernel::kStreamK);
      }
    }
  }
}

TEST(DecodeChoice, SeesNoMoreThanTheWindow) {
  const DecodeBatch rows = RowsOf({{3, 5000}, {1, 100}}, 1024);
  EXPECT_EQ(rows.count, 4);
  EXPECT_EQ(rows.longest, 1024);
  EXPECT_EQ(rows.total, 3 * 1024 + 100);
}

}  // namespace
}  // namespace baton::cuda
