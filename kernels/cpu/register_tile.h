#pragma once

#include <algorithm>
#include <cstdint>

namespace baton::cpu {

// The shapes of tiles whose sums fill at most kVectors vector registers: rows of activations ×
// panels of weights, or queries × vectors of keys or values.
template <int kVectors, int kRows = std::min(kVectors, 6)>
struct RegisterTile {
  // A number that is known at compile time.
  template <int kN>
  struct Count {
    static constexpr int value = kN;
  };

  static constexpr int kMaxRows = kRows;

  // The vectors per row of a tile with `rows` rows. A tile with few rows is wide, so that it has
  // enough independent sums to hide the latency of an addition.
  static constexpr int Width(int rows) {
    if (4 * rows <= kVectors) return 4;
    // Leaves one of four vectors alone, which has enough sums only with many rows.
    if (3 * rows <= kVectors && rows > 6) return 3;
    return 2 * rows <= kVectors ? 2 : 1;
  }

  // Rows divided into as few tiles as possible, whose numbers of rows differ by at most one.
  struct Rows {
    explicit Rows(int32_t rows) : tiles((rows + kMaxRows - 1) / kMaxRows) {
      fewest = rows / tiles;
      larger = rows % tiles;
    }
    int32_t Of(int32_t tile) const { return tile < larger ? fewest + 1 : fewest; }

    int32_t tiles;
    int32_t fewest;  // rows of the last tile
    int32_t larger;  // tiles with one row more
  };

  // Calls body(Count<rows>) for `rows` ≤ kMost.
  template <int kMost = kMaxRows, class Body>
  static void WithRows(int32_t rows, const Body& body) {
    if (rows == kMost) return body(Count<kMost>());
    if constexpr (kMost > 1) WithRows<kMost - 1>(rows, body);
  }
};

}  // namespace baton::cpu
