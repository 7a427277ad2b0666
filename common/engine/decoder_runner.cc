#include "common/engine/decoder_runner.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/log/log.h"

namespace baton {
namespace {

const Logger kLog("engine");
const SteadyClock kClock;

void LogWarmUp(std::string_view what, int steps, Duration took) {
  kLog.Info("warmed up {}: {} steps in {:.2f} s", what, steps, ToSeconds(took));
}

ModelTraits TraitsOf(const Decoder& decoder, int32_t token_ids) {
  const ModelSpec& spec = decoder.spec();
  return {.context_length = spec.context_length,
          .vocabulary = token_ids,
          .max_rows = decoder.limits().max_rows,
          .max_logit_rows = decoder.limits().max_logit_rows,
          .layers = spec.layer_count(),
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .block_token_multiple = decoder.ops().block_token_multiple(),
          .sliding_window = spec.sliding_window(),
          .k_dim_major = decoder.ops().k_dim_major(),
          .fp8_kv = decoder.limits().fp8_kv,
          .fingerprint = decoder.fingerprint()};
}

// Several steps can be under way when the last stage need not wait for the leader to take its
// logits. Otherwise each would wait for the other: the leader hands the next step on meanwhile. A
// GPU queues one step behind another then.
int32_t StagesOf(const Decoder& decoder) {
  const RankPlace& place = decoder.plan().place;
  if (!place.leader() || place.pipeline_parallel == 1) return 1;
  const size_t logits = sizeof(float) * static_cast<size_t>(decoder.limits().max_logit_rows) *
                        static_cast<size_t>(decoder.spec().vocab);
  if (decoder.ops().exchange()->SendsAhead(logits)) return place.pipeline_parallel;
  kLog.Warning(
      "the group's exchange cannot send {} bytes of logits ahead; one step at a time passes the "
      "stages, so that all of them but one are idle",
      logits);
  return 1;
}

}  // namespace

DecoderRunner::DecoderRunner(Decoder& decoder, int32_t token_ids)
    : DecoderRunner(decoder, token_ids, kClock) {}

DecoderRunner::DecoderRunner(Decoder& decoder, int32_t token_ids, const Clock& clock)
    : decoder_(decoder),
      clock_(clock),
      traits_(TraitsOf(decoder, token_ids)),
      stages_(StagesOf(decoder)) {
  BATON_CHECK(token_ids >= 1 && token_ids <= decoder.spec().vocab, "{} token ids", token_ids);
}

bool DecoderRunner::queues_steps() const {
  return stages_ == 1 && decoder_.ops().queues_steps();
}

Duration DecoderRunner::Exchanged() const {
  const Exchange* const exchange = decoder_.ops().exchange();
  return exchange == nullptr ? Duration{} : exchange->time_spent().value_or(Duration{});
}

RankTimes DecoderRunner::times() const {
  RankTimes times;
  times.steps = timer_.steps();
  times.step_seconds = ToSeconds(timer_.total());
  const Exchange* const exchange = decoder_.ops().exchange();
  if (exchange != nullptr && exchange->time_spent().has_value()) {
    times.exchange_seconds = ToSeconds(Exchanged() - exchanged_before_);
  }
  return times;
}

Status DecoderRunner::Issue(const StepInput& input,
                            const KvView& kv,
                            std::span<const SamplingRow> sampling,
                            std::span<SampledToken> out,
                            const LayerWatch& watch) {
  const Time begin = clock_.Now();
  BATON_RETURN_IF_ERROR(Begin(input, kv, sampling, out, watch));
  timer_.Begin(begin);
  return OkStatus();
}

Status DecoderRunner::Await() {
  Status status = End();
  timer_.End(clock_.Now());
  return status;
}

Status DecoderRunner::Begin(const StepInput& input,
                            const KvView& kv,
                            std::span<const SamplingRow> sampling,
                            std::span<SampledToken> out,
                            const LayerWatch& watch) {
  Ops& ops = decoder_.ops();
  BATON_RETURN_IF_ERROR(ops.BeginStep(input, kv));
  LayerHook hook;
  if (!watch.marks.empty()) {
    hook = [&](int32_t layer) {
      const int32_t layers = layer + 1;
      if (!std::ranges::binary_search(watch.marks, layers)) return;
      ops.NotifyWhenDone([reached = watch.reached, layers] { reached(layers); });
    };
  }
  decoder_.ForwardStage(input, hook);
  if (stages_ > 1) {
    BATON_RETURN_IF_ERROR(ops.IssueStep());
    issued_.push_back({input.logit_rows.size(), {sampling.begin(), sampling.end()}, out});
    return OkStatus();
  }
  const Tensor logits = decoder_.TakeLogits(input.logit_rows.size());
  Sample(logits, sampling, out);
  later_ = logits;
  return ops.IssueStep();
}

Status DecoderRunner::IssueSampling(std::span<const SamplingRow> sampling,
                                    std::span<SampledToken> out) {
  Sample(later_, sampling, out);
  return decoder_.ops().IssueSampling();
}

void DecoderRunner::Sample(const Tensor& logits,
                           std::span<const SamplingRow> sampling,
                           std::span<SampledToken> out) {
  if (sampling.empty()) return;
  decoder_.ops().Sample(logits.Columns(0, traits_.vocabulary), sampling, out);
}

Status DecoderRunner::End() {
  Ops& ops = decoder_.ops();
  if (stages_ == 1) return ops.AwaitStep();
  const Issued step = std::move(issued_.front());  // Sample may read it until AwaitStep returns
  issued_.pop_front();
  const Time begin = clock_.Now();
  const Tensor logits = decoder_.TakeLogits(step.logit_rows);
  if (!ops.queues_steps()) bubble_ += clock_.Now() - begin;  // otherwise the wait is in AwaitStep
  Sample(logits, step.sampling, step.out);
  return ops.AwaitStep();
}

Status DecoderRunner::RunAlike(const KvView& kv, int32_t sequences, int32_t context, int32_t rows) {
  const int32_t blocks = (context + rows + kv.block_tokens - 1) / kv.block_tokens;
  const std::vector<TokenId> tokens(static_cast<size_t>(sequences) * rows, 0);
  const std::vector<int32_t> tables(static_cast<size_t>(sequences) * blocks, 0);
  std::vector<int32_t> positions;
  std::vector<SequenceRows> parts;
  std::vector<int32_t> logit_rows;
  const SamplingParams greedy = {{.temperature = 0}, {}};
  const int32_t sampled_rows = decoder_.plan().place.leader() ? sequences : 0;
  const std::vector<SamplingRow> sampling(sampled_rows, SamplingRow{&greedy, 0, {}, {}, {}});
  for (int32_t i = 0; i < sequences; ++i) {
    parts.push_back({i * rows, rows, context, i * blocks});
    for (int32_t row = 0; row < rows; ++row) positions.push_back(context + row);
    logit_rows.push_back((i + 1) * rows - 1);
  }
  std::vector<SampledToken> sampled(sampled_rows);
  BATON_RETURN_IF_ERROR(Issue({.tokens = tokens,
                               .positions = positions,
                               .sequences = parts,
                               .block_tables = tables,
                               .logit_rows = logit_rows},
                              kv,
                              sampling,
                              sampled,
                              {}));
  return Await();
}

WarmUpSizes DecoderRunner::SizesToWarmUp() const {
  return decoder_.ops().SizesToWarmUp(traits_.max_rows,
                                      std::min(traits_.max_rows, traits_.max_logit_rows));
}

Status DecoderRunner::WarmUpPrompts(const KvView& kv) {
  const Time start = clock_.Now();
  int steps = 0;
  std::vector<int32_t> sizes = SizesToWarmUp().prompt_rows;
  std::erase_if(sizes, [&](int32_t rows) { return rows > traits_.context_length; });
  if (sizes.empty()) return OkStatus();
  const auto run = [&](int32_t rows) -> Status {
    ++steps;
    return RunAlike(kv, 1, 0, rows);
  };
  // The largest step tells whether kernels must be timed at every size. Otherwise the smaller steps
  // run only where they are cheap, because other kernels compute few rows.
  constexpr int32_t kCheapRows = 512;
  BATON_RETURN_IF_ERROR(run(sizes.back()));
  for (const int32_t rows : std::span(sizes).first(sizes.size() - 1)) {
    if (rows > kCheapRows && !decoder_.ops().has_timed_kernels()) break;
    BATON_RETURN_IF_ERROR(run(rows));
  }
  // A later chunk of a prompt runs other kernels than the first one, and needs memory for the part
  // of the prompt that is already in the KV cache.
  constexpr std::array<int32_t, 2> kCached = {1024, 8192};
  for (const int32_t context : kCached) {
    if (context + sizes.back() > traits_.context_length) break;
    BATON_RETURN_IF_ERROR(RunAlike(kv, 1, context, sizes.back()));
    ++steps;
  }
  if (steps > 0) LogWarmUp("prompts", steps, clock_.Now() - start);
  return OkStatus();
}

Status DecoderRunner::WarmUpDecodes(const KvView& kv) {
  // Attention divides short, medium and long contexts among thread blocks in different ways.
  constexpr std::array<int32_t, 3> kContexts = {0, 1024, 8192};
  const Time start = clock_.Now();
  int steps = 0;
  for (const int32_t rows : SizesToWarmUp().decode_rows) {
    for (const int32_t context : kContexts) {
      if (context >= traits_.context_length) break;
      BATON_RETURN_IF_ERROR(RunAlike(kv, rows, context, 1));
      ++steps;
    }
  }
  if (steps > 0) LogWarmUp("decoding", steps, clock_.Now() - start);
  timer_ = {};
  exchanged_before_ = Exchanged();
  const Status kept = decoder_.ops().KeepTimedKernels();
  if (!kept.ok()) {
    kLog.Warning("the next start must time kernels again: {}; engine.kernel_cache names the folder",
                 kept.ToString());
  }
  return OkStatus();
}

Status DecoderRunner::CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) {
  return decoder_.ops().CopyBlocks(kv, copies);
}

}  // namespace baton
