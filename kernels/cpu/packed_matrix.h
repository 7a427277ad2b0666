#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/weight_memory.h"
#include "kernels/tensor.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// One of the matrices stacked in a PackedMatrix.
struct PackedPart {
  PanelView view;
  StoredScales stored;    // with data: `view` has no scales, and these are expanded for each GEMM
  int64_t first_row = 0;  // index in the whole matrix
  int64_t rows = 0;
  int64_t panels = 0;  // panels of 16 rows; the last one is padded with zeros
  std::shared_ptr<std::byte> memory;
};

// Weights in panels of 16 outputs. Quantised weights stay quantised. Immutable after Pack.
//
// Values of a panel, where w[o][k] is the weight of output o for input k:
//   floats   [k][16 outputs]; also FP8, which has scales for groups
//   kNibble  per block of 32 inputs 4 × 16 32-bit words; bits 4i … 4i+3 of word o of group j hold
//            w[o][2(4j + i)], bits 16+4i … hold w[o][2(4j + i) + 1]: shift and mask by 0x000f000f
//            give the weights of two consecutive inputs for 16 outputs
//   kByte    per block 8 × 16 words; bytes 0, 2 of word o of group j hold w[o][4j], w[o][4j + 1],
//            bytes 1, 3 hold w[o][4j + 2], w[o][4j + 3], signed
//   kFp4     per block 4 × 16 words; the low nibbles of bytes 0 … 3 of word o of group j are the
//            FP4 numbers w[o][8j + {0, 2, 1, 3}], the high ones w[o][8j + 4 + {0, 2, 1, 3}]
//   kIQ4     the same with indices into kIQ4Values
//   kFive    per block 5 × 16 words. Bits 0 … 4, 6 … 10 and 11 … 15 of the low half of word o of
//            group j are w[o][2(3j + {0, 1, 2})], bit 5 is bit j of w[o][30]; the high half has the
//            odd inputs
//   kSix     per half of a block 3 × 16 words a, b, c. Bits 0 … 5 and 10 … 15 of the low halves of
//            a, b, c are the weights of inputs 0, 2, … 10. Those of input 12 are bits 6 … 9 of a
//            and above them 6 … 7 of c, those of input 14 bits 6 … 9 of b and 8 … 9 of c; the high
//            halves have the odd inputs
// Scales of a panel, per block, or per group of blocks (PanelView::group_shift): 16 scales (two
// sets when the block has two scales per output), then as many minima if the format has minima. A
// weight is scale · (integer − zero point) + minimum.
class PackedMatrix final : public Matrix {
 public:
  // Packs `parts`, concatenated along their rows. Errors: InvalidArgument naming the part and the
  // value, ResourceExhausted.
  static StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const HostMatrix> parts,
                                                      WeightMemory& weights,
                                                      ThreadPool& pool);

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t bytes() const override { return bytes_; }

  const std::vector<PackedPart>& parts() const { return parts_; }
  // The input that the weights have at each place (InputOrder); empty: they are in order.
  std::span<const int32_t> input_order() const { return input_order_; }
  // Whether a part has quantised weights and so needs quantised activations.
  bool quantised() const { return quantised_; }
  // Dequantises row `row` to out[0 … cols).
  void Row(int64_t row, float* out) const;

 private:
  PackedMatrix() = default;

  // Row `row` with the inputs in the order of the weights.
  void RowInOrder(int64_t row, float* out) const;
  Status Add(const HostMatrix& host, size_t index, WeightMemory& weights, ThreadPool& pool);

  std::vector<PackedPart> parts_;
  std::vector<int32_t> input_order_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  size_t bytes_ = 0;
  bool quantised_ = false;
};

}  // namespace baton::cpu
