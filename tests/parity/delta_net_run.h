#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// Random inputs and weights of one layer with a gated delta net, and sequences whose states are in
// scattered blocks of an arena of NaN. The layer is the second one of two with states.
class DeltaNetRun final {
 public:
  DeltaNetRun(Ops& ops, const DeltaNetShape& shape, int32_t sequences, int32_t rows);

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
    std::vector<float> x;      // [rows][key_heads · input_columns]
    std::vector<float> gates;  // [rows][2 · value_heads]
    std::vector<int32_t> blocks;
    std::vector<int32_t> other_blocks;
    int32_t context = 0;
  };

  int64_t InputColumns() const { return int64_t{shape_.key_heads} * shape_.input_columns(); }
  int64_t OutputColumns() const { return int64_t{shape_.value_heads} * shape_.value_dim; }
  std::vector<double> ExpectedOf(const Sequence& sequence, int32_t value_head) const;
  std::vector<double> Convolved(
      const Sequence& sequence, int32_t row, int32_t key_head, int32_t first, int32_t count) const;

  Ops& ops_;
  const DeltaNetShape shape_;
  const int32_t rows_;
  const std::vector<float> convolution_;
  const std::vector<float> decay_;
  const std::vector<float> time_bias_;
  const std::vector<float> norm_;
  std::vector<Sequence> sequences_;
  std::vector<KvLayerPlace> places_;
  KvView view_;
  int32_t state_blocks_ = 0;
  std::unique_ptr<Buffer> arena_;
};

}  // namespace baton::parity
