#pragma once

#include <deque>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/model_runner.h"
#include "common/engine/step_timer.h"
#include "common/model/decoder.h"

namespace baton {

// Runs a real model: a Decoder and its Ops. Owns neither; both outlive it. When the decoder is a
// part of a model, every rank of the group issues the same steps: the leader with sampling rows,
// the other ranks without, and each with the view of its own KV shard. On the first stage of a
// pipeline Issue returns when the rank's own layers are computed and handed on, and Await receives
// the logits and samples. One thread at a time.
class DecoderRunner final : public ModelRunner {
 public:
  // Only tokens with an id below `token_ids`, 1 … the rows of the head, are sampled: a tokenizer
  // may have fewer ids than the head has rows. `clock`, which measures the steps, outlives the
  // runner; else it is the machine's clock.
  DecoderRunner(Decoder& decoder, int32_t token_ids);
  DecoderRunner(Decoder& decoder, int32_t token_ids, const Clock& clock);
  explicit DecoderRunner(Decoder& decoder) : DecoderRunner(decoder, decoder.spec().vocab) {}

  const ModelTraits& traits() const override { return traits_; }
  Device& device() override { return decoder_.ops().device(); }
  bool queues_steps() const override;
  int32_t stages() const override { return stages_; }
  Duration bubble() const override { return bubble_; }
  RankTimes times() const override;
  Status Issue(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  bool samples_later() const override { return queues_steps() && decoder_.ops().samples_later(); }
  Status IssueSampling(std::span<const SamplingRow> sampling, std::span<SampledToken> out) override;
  bool has_late_rows() const override { return decoder_.ops().has_late_rows(); }
  bool StepEnded() const override { return stages_ == 1 && decoder_.ops().StepEnded(); }
  Status Await() override;
  Status WarmUpPrompts(const KvView& kv) override;
  Status WarmUpDecodes(const KvView& kv) override;
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

 private:
  Status Begin(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch);
  Status End();
  // Issues the sampling of all rows from the logits of the tokens that there are.
  void Sample(const Tensor& logits,
              std::span<const SamplingRow> sampling,
              std::span<SampledToken> out);
  // The time of all exchanges so far.
  Duration Exchanged() const;
  WarmUpSizes SizesToWarmUp() const;
  // Runs one step of `sequences` equal sequences: each computes `rows` tokens after `context`
  // tokens, and every entry of its block table is block 0.
  Status RunAlike(const KvView& kv, int32_t sequences, int32_t context, int32_t rows);

  // A step whose logits the last stage has not sent yet, or are not received.
  struct Issued {
    size_t logit_rows = 0;
    std::vector<SamplingRow> sampling;
    std::span<SampledToken> out;
  };

  Decoder& decoder_;
  const Clock& clock_;
  const ModelTraits traits_;
  const int32_t stages_;
  std::deque<Issued> issued_;  // oldest first; empty with one stage
  Tensor later_;               // the logits of the newest step
  Duration bubble_{};
  StepTimer timer_;
  Duration exchanged_before_{};  // in the warm-up
};

}  // namespace baton
