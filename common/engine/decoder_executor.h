#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/arena.h"
#include "common/engine/executor.h"
#include "common/engine/step_timer.h"
#include "common/engine/step_watch.h"
#include "common/model/decoder.h"

namespace baton {

// What the engine needs to know of a model. Only tokens with an id below `token_ids`, 1 … the rows
// of the head, are sampled: a tokenizer may have fewer ids than the head has rows.
ModelTraits TraitsOf(const Decoder& decoder, int32_t token_ids);

// The executor of one rank: computes with a Decoder on one device of this process, and owns the
// arena. When the decoder is a part of a model, every rank of the group issues the same steps: the
// leader with sampling rows, the other ranks without. On the first stage of a pipeline Issue
// returns when the rank's own layers are computed and handed on, and Await receives the logits and
// samples. One thread at a time.
class DecoderExecutor final : public Executor {
 public:
  struct Options {
    KvOptions kv;
    // As in ArenaSpec.
    std::function<StatusOr<int32_t>(int32_t blocks)> agree_on_blocks = {};
    int32_t token_ids = 0;         // as in TraitsOf; 0: the rows of the head
    StepWatch* watch = nullptr;    // null: steps have no time limit; warm-up never has one
    const Clock* clock = nullptr;  // measures the steps; null: the machine's clock
  };

  // Warms the decoder up and allocates the arena, in the order that lets the arena take the memory
  // which the steps leave free. Errors: those of OpenArena and of the steps of the warm-up.
  // `decoder`, and the pointers in `options`, outlive the executor. Several executors may share a
  // decoder if none has a step under way while another one is used.
  static StatusOr<std::unique_ptr<DecoderExecutor>> Create(Decoder& decoder,
                                                           const Options& options);

  const ModelTraits& traits() const override { return traits_; }
  const KvLayout& kv_layout() const override { return arena_.layout; }
  int32_t kv_blocks() const override { return arena_.view.blocks; }
  std::span<const KvArena> kv_arenas() const override { return {&arena_.arena, 1}; }
  std::string device_name() const override { return decoder_.ops().device().name(); }
  bool queues_steps() const override;
  int32_t stages() const override { return stages_; }
  Duration bubble() const override { return bubble_; }
  std::vector<RankTimes> rank_times() const override;
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  bool samples_later() const override { return queues_steps() && decoder_.ops().samples_later(); }
  Status IssueSampling(std::span<const SamplingRow> sampling, std::span<SampledToken> out) override;
  bool has_late_rows() const override { return decoder_.ops().has_late_rows(); }
  bool StepEnded() const override { return stages_ == 1 && decoder_.ops().StepEnded(); }
  Status Await() override;
  Status CopyBlocks(std::span<const BlockCopy> copies) override;

 private:
  DecoderExecutor(Decoder& decoder, const Options& options);

  Status Begin(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch);
  Status End();
  // Issues the sampling of all rows from the logits of the tokens that there are, and the copies of
  // states, where the step computes them.
  void Sample(const StepResults& results,
              std::span<const SamplingRow> sampling,
              std::span<SampledToken> out);
  // The time of all exchanges so far.
  Duration Exchanged() const;
  // Runs prompts of each size once, so that later prompts do not pay the one-time costs, and
  // allocates the memory that steps need. Overwrites `kv`, which needs only one block.
  Status WarmUpPrompts(const KvView& kv);
  // The same for steps that only decode, in the arena.
  Status WarmUpDecodes();
  WarmUpSizes SizesToWarmUp() const;
  void CountStateBlocks(const KvOptions& options);
  // Runs one step of `sequences` equal sequences: each computes `rows` tokens after `context`
  // tokens, and every entry of its block table is block 0. Their states have blocks of their own as
  // far as there are enough, because sequences that share one are computed one after the other.
  Status RunAlike(const KvView& kv, int32_t sequences, int32_t context, int32_t rows);

  // A step whose logits the last stage has not sent yet, or are not received.
  struct Issued {
    size_t logit_rows = 0;
    RowResults results = RowResults::kLogits;
    std::vector<SamplingRow> sampling;
    std::span<SampledToken> out;
  };

  Decoder& decoder_;
  const Clock& clock_;
  StepWatch* const watch_;
  const ModelTraits traits_;
  const int32_t stages_;
  int32_t state_blocks_ = 0;  // of a state on this rank
  OwnedArena arena_;
  std::deque<Issued> issued_;             // oldest first; empty with one stage
  StepResults later_;                     // of the newest step
  std::vector<std::span<float>> states_;  // where states go
  Duration bubble_{};
  StepTimer timer_;
  Duration exchanged_before_{};  // in the warm-up
};

}  // namespace baton
