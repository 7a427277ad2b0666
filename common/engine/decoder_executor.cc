#include "common/engine/decoder_executor.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/model/dense_kv.h"

namespace baton {
namespace {

const Logger kLog("engine");
const SteadyClock kClock;

void LogWarmUp(std::string_view what, int steps, Duration took) {
  kLog.Info("warmed up {}: {} steps in {:.2f} s", what, steps, ToSeconds(took));
}

// Several steps can be under way when the last stage need not wait for the leader to take its
// logits. Otherwise each would wait for the other: the leader hands the next step on meanwhile. A
// GPU queues one step behind another then.
int32_t StagesOf(const Decoder& decoder) {
  const RankPlace& place = decoder.plan().place;
  if (!place.leader() || place.pipeline_parallel == 1) return 1;
  const ModelSpec& spec = decoder.spec();
  const int64_t both =
      int64_t{decoder.limits().max_logit_rows} * (int64_t{spec.vocab} + spec.hidden);
  const int64_t states = int64_t{decoder.limits().max_rows} * spec.hidden;
  const size_t results = sizeof(float) * static_cast<size_t>(std::max(both, states));
  if (decoder.ops().exchange()->SendsAhead(results)) return place.pipeline_parallel;
  kLog.Warning(
      "the group's exchange cannot send {} bytes of logits and hidden states ahead; one step at a "
      "time passes the stages, so that all of them but one are idle",
      results);
  return 1;
}

}  // namespace

ModelTraits TraitsOf(const Decoder& decoder, int32_t token_ids) {
  const ModelSpec& spec = decoder.spec();
  BATON_CHECK(token_ids >= 1 && token_ids <= spec.vocab, "{} token ids", token_ids);
  const KvNeeds needs = decoder.ops().kv_needs();
  return {.context_length = spec.context_length,
          .hidden = spec.hidden,
          .vocabulary = token_ids,
          .max_rows = decoder.limits().max_rows,
          .max_logit_rows = decoder.limits().max_logit_rows,
          .block_token_multiple = needs.block_token_multiple,
          .kv = DenseKvOf(spec, needs),
          .fp8_kv = decoder.limits().fp8_kv,
          .fingerprint = decoder.fingerprint()};
}

StatusOr<std::unique_ptr<DecoderExecutor>> DecoderExecutor::Create(Decoder& decoder,
                                                                   const Options& options) {
  std::unique_ptr<DecoderExecutor> executor(new DecoderExecutor(decoder, options));
  const ArenaSpec spec = {.options = options.kv,
                          .shard = decoder.plan().kv_shard,
                          .warm_up =
                              [&](const KvView& kv) {
                                executor->CountStateBlocks(options.kv);
                                return executor->WarmUpPrompts(kv);
                              },
                          .agree_on_blocks = options.agree_on_blocks};
  BATON_ASSIGN_OR_RETURN(executor->arena_,
                         OpenArena(spec, executor->traits_, decoder.ops().device()));
  BATON_RETURN_IF_ERROR(executor->WarmUpDecodes());
  return executor;
}

DecoderExecutor::DecoderExecutor(Decoder& decoder, const Options& options)
    : decoder_(decoder),
      clock_(options.clock != nullptr ? *options.clock : kClock),
      watch_(options.watch),
      traits_(TraitsOf(decoder, options.token_ids > 0 ? options.token_ids : decoder.spec().vocab)),
      stages_(StagesOf(decoder)) {}

bool DecoderExecutor::queues_steps() const {
  return stages_ == 1 && decoder_.ops().queues_steps();
}

Duration DecoderExecutor::Exchanged() const {
  const Exchange* const exchange = decoder_.ops().exchange();
  return exchange == nullptr ? Duration{} : exchange->time_spent().value_or(Duration{});
}

std::vector<RankTimes> DecoderExecutor::rank_times() const {
  RankTimes times;
  times.steps = timer_.steps();
  times.step_seconds = ToSeconds(timer_.total());
  const Exchange* const exchange = decoder_.ops().exchange();
  if (exchange != nullptr && exchange->time_spent().has_value()) {
    times.exchange_seconds = ToSeconds(Exchanged() - exchanged_before_);
  }
  return {times};
}

Status DecoderExecutor::Issue(const StepInput& input,
                              std::span<const SamplingRow> sampling,
                              std::span<SampledToken> out,
                              const LayerWatch& watch) {
  const StepWatch::Call call(watch_);
  const Time begin = clock_.Now();
  BATON_RETURN_IF_ERROR(Begin(input, arena_.view, sampling, out, watch));
  timer_.Begin(begin);
  return OkStatus();
}

Status DecoderExecutor::Await() {
  const StepWatch::Call call(watch_);
  Status status = End();
  timer_.End(clock_.Now());
  return status;
}

Status DecoderExecutor::Begin(const StepInput& input,
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
    issued_.push_back(
        {input.logit_rows.size(), input.results, {sampling.begin(), sampling.end()}, out});
    return OkStatus();
  }
  later_ = decoder_.TakeResults(input.logit_rows.size(), input.results);
  Sample(later_, sampling, out);
  return ops.IssueStep();
}

Status DecoderExecutor::IssueSampling(std::span<const SamplingRow> sampling,
                                      std::span<SampledToken> out) {
  const StepWatch::Call call(watch_);
  Sample(later_, sampling, out);
  return decoder_.ops().IssueSampling();
}

void DecoderExecutor::Sample(const StepResults& results,
                             std::span<const SamplingRow> sampling,
                             std::span<SampledToken> out) {
  if (sampling.empty()) return;
  if (results.states.rows > 0) {
    states_.clear();
    for (const SamplingRow& row : sampling) states_.push_back(row.state);
    decoder_.ops().CopyRows(results.states, states_);
  }
  if (results.logits.rows == 0) return;
  decoder_.ops().Sample(results.logits.Columns(0, traits_.vocabulary), sampling, out);
}

Status DecoderExecutor::End() {
  Ops& ops = decoder_.ops();
  if (stages_ == 1) return ops.AwaitStep();
  const Issued step = std::move(issued_.front());  // Sample may read it until AwaitStep returns
  issued_.pop_front();
  const Time begin = clock_.Now();
  const StepResults results = decoder_.TakeResults(step.logit_rows, step.results);
  if (!ops.queues_steps()) bubble_ += clock_.Now() - begin;  // otherwise the wait is in AwaitStep
  Sample(results, step.sampling, step.out);
  return ops.AwaitStep();
}

void DecoderExecutor::CountStateBlocks(const KvOptions& options) {
  const KvLayout layout = LayoutFor(options, traits_);
  state_blocks_ = StateBlocks(layout, {&decoder_.plan().kv_shard, 1});
}

Status DecoderExecutor::RunAlike(const KvView& kv,
                                 int32_t sequences,
                                 int32_t context,
                                 int32_t rows) {
  const int32_t blocks = (context + rows + kv.block_tokens - 1) / kv.block_tokens;
  const std::vector<TokenId> tokens(static_cast<size_t>(sequences) * rows, 0);
  std::vector<int32_t> tables(static_cast<size_t>(sequences) * blocks * kv.groups, 0);
  std::vector<int32_t> positions;
  std::vector<SequenceRows> parts;
  std::vector<int32_t> logit_rows;
  const SamplingParams greedy = {{.temperature = 0}, {}};
  const int32_t sampled_rows = decoder_.plan().place.leader() ? sequences : 0;
  const std::vector<SamplingRow> sampling(sampled_rows, SamplingRow{&greedy, 0, {}, {}, {}});
  for (int32_t i = 0; i < sequences; ++i) {
    parts.push_back({.first_row = i * rows,
                     .row_count = rows,
                     .context = context,
                     .first_block = i * blocks * kv.groups,
                     .table_blocks = blocks,
                     .state_table = static_cast<int32_t>(tables.size())});
    for (int32_t j = 0; j < 2 * state_blocks_; ++j) {
      tables.push_back((i * state_blocks_ + j % state_blocks_) % kv.blocks);
    }
    for (int32_t row = 0; row < rows; ++row) positions.push_back(context + row);
    logit_rows.push_back((i + 1) * rows - 1);
  }
  std::vector<SampledToken> sampled(sampled_rows);
  BATON_RETURN_IF_ERROR(Begin({.tokens = tokens,
                               .positions = positions,
                               .sequences = parts,
                               .block_tables = tables,
                               .logit_rows = logit_rows,
                               .state_blocks = state_blocks_},
                              kv,
                              sampling,
                              sampled,
                              {}));
  return End();
}

WarmUpSizes DecoderExecutor::SizesToWarmUp() const {
  return decoder_.ops().SizesToWarmUp(traits_.max_rows,
                                      std::min(traits_.max_rows, traits_.max_logit_rows));
}

Status DecoderExecutor::WarmUpPrompts(const KvView& kv) {
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

Status DecoderExecutor::WarmUpDecodes() {
  // Attention divides short, medium and long contexts among thread blocks in different ways.
  constexpr std::array<int32_t, 3> kContexts = {0, 1024, 8192};
  const Time start = clock_.Now();
  int steps = 0;
  for (const int32_t rows : SizesToWarmUp().decode_rows) {
    for (const int32_t context : kContexts) {
      if (context >= traits_.context_length) break;
      BATON_RETURN_IF_ERROR(RunAlike(arena_.view, rows, context, 1));
      ++steps;
    }
  }
  if (steps > 0) LogWarmUp("decoding", steps, clock_.Now() - start);
  exchanged_before_ = Exchanged();
  const Status kept = decoder_.ops().KeepTimedKernels();
  if (!kept.ok()) {
    kLog.Warning("the next start must time kernels again: {}; engine.kernel_cache names the folder",
                 kept.ToString());
  }
  return OkStatus();
}

Status DecoderExecutor::CopyBlocks(std::span<const BlockCopy> copies) {
  const StepWatch::Call call(watch_);
  return decoder_.ops().CopyBlocks(arena_.view, copies);
}

}  // namespace baton
