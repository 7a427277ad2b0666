#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// Random inputs and weights of one recurrent layer, and sequences whose states are in scattered
// blocks of an arena of NaN. The layer is the second one of two with states.
class RecurrentRun final {
 public:
  // Blocks of a state have `block_bytes`; kSplitBytes does not divide the parts of a state.
  static constexpr int64_t kSplitBytes = 1040;
  RecurrentRun(Ops& ops,
               const RecurrentShape& shape,
               int32_t sequences,
               int32_t rows,
               int64_t block_bytes = kSplitBytes);

  // Some rows of a sequence in a step.
  struct Part {
    int32_t sequence = 0;
    int32_t rows = 0;
    bool moves = false;     // the state is written into other blocks than it is read from
    bool in_state = false;  // the last row once more; `rows` is 1
  };
  // Runs a step. Returns the outputs of its rows, one behind the other.
  std::vector<float> Step(std::span<const Part> parts);
  // All rows of all sequences, in steps of several sizes. The outputs are those of each sequence in
  // turn.
  std::vector<float> Compute();
  // The same in double precision.
  std::vector<double> Expected() const;
  // The numbers of the state of a sequence.
  std::vector<float> State(int32_t sequence) const;
  // Begins all sequences anew.
  void Reset();

 private:
  struct Sequence {
    std::vector<float> x;      // [rows][input_columns()]
    std::vector<float> gates;  // [rows][gate_columns()]
    std::vector<float> k;      // kSelectiveScan: [rows][key_dim]
    std::vector<float> q;
    std::vector<int32_t> blocks;
    std::vector<int32_t> other_blocks;
    int32_t context = 0;
  };

  // Where the inputs have q, k, v and z of a value head.
  struct Columns {
    int64_t q = 0;
    int64_t k = 0;
    int64_t v = 0;
    int64_t z = 0;
  };
  Columns ColumnsOf(int32_t value_head) const;
  bool scans() const { return shape_.rule == RecurrentRule::kSelectiveScan; }
  bool is_delta() const {
    return shape_.rule == RecurrentRule::kDelta || shape_.rule == RecurrentRule::kChannelDelta;
  }
  int64_t OutputColumns() const { return shape_.value_numbers(); }
  // The inputs of a step, its outputs, and memory for v of kSelectiveScan.
  struct Tensors {
    Tensor x, gates, k, q, v, out;
  };
  void Run(const Tensors& tensors);
  // e^(−e^A · time) of number (i, j) of S, and what multiplies k ⊗ v.
  double DecayOf(const float* gates, int32_t head, size_t i, size_t j) const;
  double FactorOf(const float* x, const float* gates, int32_t head, size_t j) const;
  double TimeOf(const float* gates, int32_t head, size_t i, size_t j) const;
  // qᵀ S + D · v of one value head in all rows.
  std::vector<double> ExpectedOf(const Sequence& sequence, int32_t value_head) const;
  // What the rule makes of qᵀ S in a row, for the outputs of a key head.
  void Finish(const float* x, int32_t key_head, std::span<double> outputs) const;
  // silu(convolution) of `count` columns of the inputs from `column` on, which are the channels of
  // a key head from `channel` on.
  std::vector<double> Convolved(const Sequence& sequence,
                                int32_t row,
                                int32_t key_head,
                                int32_t channel,
                                int64_t column,
                                int32_t count) const;

  Ops& ops_;
  const RecurrentShape shape_;
  const int32_t rows_;
  const std::vector<float> convolution_;
  const std::vector<float> bias_;  // of the convolution; empty with kDelta
  const std::vector<float> decay_;
  const std::vector<float> time_bias_;
  const std::vector<float> skip_;
  const std::vector<float> norm_;  // empty: none
  // The same six on the device.
  std::vector<std::unique_ptr<Vector>> vectors_;
  std::vector<Sequence> sequences_;
  std::vector<KvLayerPlace> places_;
  KvView view_;
  int32_t state_blocks_ = 0;
  std::unique_ptr<Buffer> arena_;
};

}  // namespace baton::parity
