#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tests/parity/device_tensor.h"

namespace baton::parity {

// Owns the data of a StepInput.
struct StepPlan {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> tables;
  std::vector<int32_t> logit_rows;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  StepInput input() const { return {tokens, positions, sequences, tables, logit_rows}; }
};

// Runs ops that do not depend on the step input, inside a step of one row.
void InStep(Ops& ops, const std::function<void()>& body);

// What a head makes of its logits.
struct HeadSoftmax {
  double scale = 1;
  double cap = 0;                   // AttentionArgs::cap
  std::optional<double> sink = {};  // one more logit without a value
};

// Sequences with random q, k and v for every position, and a KV cache in which their blocks are in
// random order. Layer 1 is under test.
class History final {
 public:
  History(Ops& ops,
          const HeadShape& heads,
          DType dtype,
          int32_t block_tokens,
          std::vector<std::pair<int32_t, int32_t>> sequences);

  Cache& cache() { return cache_; }
  // RopeArgs::kv_scales; null unless the KV cache is FP8. For an FP8 cache all K and V values are
  // representable in it.
  const Vector* kv_scales() const { return scale_vector_.get(); }
  // Writes the KV of every sequence's context, and NaN to all other slots.
  void Fill();
  // A step that computes rows [first, first + count) of each sequence, with logits of the last row.
  StepPlan Step(const std::vector<std::pair<int32_t, int32_t>>& rows) const;
  // A step with the rows after the context of each sequence.
  StepPlan LastStep() const { return Step(sequences_); }
  // [q | k | v] of the rows of `plan`.
  std::vector<float> Rows(const StepPlan& plan) const;
  // Reference attention in double precision: one head at `position`, over [begin, position].
  std::vector<double> Attend(size_t sequence,
                             int32_t position,
                             int32_t begin,
                             int32_t head,
                             int32_t kv_head,
                             const HeadSoftmax& softmax) const;

 private:
  const float* At(size_t sequence, int32_t position) const;
  // Rounds K and V to values that the FP8 cache can represent.
  void HoldStored(std::vector<float>& values) const;
  // A value of K or V after it was stored in the cache. The values of an FP8 cache are already
  // rounded.
  float Held(float value) const;
  // A value of head `kv_head` of K (part 0) or V (part 1) after it was stored with its scale.
  float Stored(int part, int32_t kv_head, float value) const;
  int64_t width() const;

  Ops& ops_;
  HeadShape heads_;
  std::vector<std::pair<int32_t, int32_t>> sequences_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> values_;
  std::vector<float> scales_;  // [K | V][kv head]
  std::unique_ptr<Vector> scale_vector_;
  Cache cache_;
};

}  // namespace baton::parity
