#pragma once

#include <cstdint>

// Sizes that the plan of a product of few rows shares with its kernel.
namespace baton::cuda {

constexpr int32_t kSkinnyWarps = 8;         // that multiply; one more fetches
constexpr int32_t kSkinnyTileRows = 16;     // of the weight
constexpr int32_t kSkinnyTilesPerWarp = 3;  // at once: what its registers hold
constexpr int32_t kSkinnyBoxSizes = 4;      // boxes of 1, 2, 4 and 8 tiles
constexpr int32_t kSkinnySpan = 64;         // numbers of k in a line of 128 bytes
constexpr int32_t kSkinnyTileBytes = kSkinnyTileRows * kSkinnySpan * 2;
constexpr int32_t kSkinnyGroupColumns = 8;  // rows of x, which are columns of the sums
constexpr int32_t kSkinnyGroupBytes = kSkinnyGroupColumns * kSkinnySpan * 2;
constexpr int32_t kSkinnyGroupSumBytes = kSkinnyTileRows * kSkinnyGroupColumns * 4;
constexpr int32_t kSkinnyNormBytes = 1024;  // 64 numbers and a gap: tiles begin at 1024 bytes
constexpr int32_t kSkinnyMostStages = 16;
constexpr int32_t kSkinnyHeadBytes = 2048;  // barriers, and what aligns them

}  // namespace baton::cuda
