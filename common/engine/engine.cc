#include "common/engine/engine.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/overloaded.h"
#include "common/engine/batch.h"
#include "common/engine/grammar_queue.h"
#include "common/engine/inbox.h"
#include "common/engine/scheduler.h"
#include "common/engine/sequence_masks.h"
#include "common/engine/step_ahead.h"
#include "common/engine/step_time.h"
#include "common/kvcache/kv_cache.h"

namespace baton {
namespace {

Status CheckCount(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument("engine: {} is {}; it must be between {} and {}", field, value, low, high);
}

Status CheckOptions(const EngineOptions& options, const ModelTraits& traits) {
  constexpr int32_t kMany = 1 << 24;
  BATON_RETURN_IF_ERROR(CheckCount("max_step_tokens", options.max_step_tokens, 1, traits.max_rows));
  BATON_RETURN_IF_ERROR(
      CheckCount("max_sequences", options.max_sequences, 1, traits.max_logit_rows));
  BATON_RETURN_IF_ERROR(CheckCount("max_waiting", options.max_waiting, 1, kMany));
  BATON_RETURN_IF_ERROR(CheckCount("mask_threads", options.mask_threads, 1, 64));
  BATON_RETURN_IF_ERROR(CheckCount("lookup_drafts", options.lookup_drafts, 0, kMaxLookupDrafts));
  BATON_RETURN_IF_ERROR(
      CheckCount("state_checkpoint_tokens", options.state_checkpoint_tokens, 0, kMany));
  return CheckCount("max_waiting_reservations", options.max_waiting_reservations, 0, kMany);
}

Status CheckStateFits(const Executor& executor) {
  const int32_t state = StateBlocks(executor);
  const int32_t least = state + executor.kv_layout().block_groups();
  if (state == 0 || executor.kv_blocks() >= least) return OkStatus();
  return MakeStatus(
      StatusCode::kResourceExhausted,
      "engine: the KV arena has {} blocks; the state of one sequence takes {}, and its "
      "first tokens {} more",
      executor.kv_blocks(),
      state,
      least - state);
}

Scheduler::Options SchedulerOptions(const EngineOptions& options, const Executor& executor) {
  const ModelTraits& traits = executor.traits();
  return {.engine = options,
          .limits = {.context_length = traits.context_length,
                     .vocabulary = traits.vocabulary,
                     .max_samples = std::min(options.max_sequences, options.max_step_tokens),
                     .scored_rows =
                         std::min(kScoredRows, traits.max_logit_rows - options.max_sequences)},
          .model_fingerprint = traits.fingerprint,
          .stages = std::min<int32_t>(executor.stages(), StepQueue::kMaxSteps),
          .samples_later = executor.samples_later()};
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const EngineOptions& options,
       Executor& executor,
       EngineListener& listener,
       const Clock& clock,
       GrammarCompiler* grammars)
      : executor_(executor),
        listener_(listener),
        clock_(clock),
        cache_(executor.kv_blocks(),
               executor.kv_layout().block_tokens,
               options.prefix_cache,
               executor.kv_layout().windows(),
               StateBlocks(executor)),
        scheduler_(SchedulerOptions(options, executor), cache_),
        masks_(executor.traits().vocabulary, options.mask_threads),
        compiling_(grammars, masks_, inbox_) {
    layer_marks_ = executor.kv_layout().layer_group_ends;
    UpdateStats();
  }

  // Waits for the steps under way, because they write to memory of this object.
  ~Impl() {
    for (size_t i = 0; i < steps_.size(); ++i) (void)Await(steps_[i]);
  }

  bool Step() {
    bool worked = TakeMessages();
    while (CanIssue()) {
      const StepPlan& plan = scheduler_.Plan(clock_.Now());
      worked |= plan.preempted > 0;
      worked |= Deliver();
      if (plan.rows.empty()) break;
      // Counts the new requests before the step, because the step may take long.
      if (worked) UpdateStats();
      IssueNewest();
    }
    if (!steps_.empty()) {
      if (executor_.queues_steps()) IssueAhead();
      EndOldest();
      const bool samples = !steps_.empty() && steps_.oldest().samples_later;
      if (samples) masks_.BeginAll(steps_.oldest().plan);
      Deliver();
      if (samples) IssueSampling(steps_.oldest());
      if (!steps_.empty()) TellLayers(steps_.oldest());
      worked = true;
    } else {
      last_end_.reset();
    }
    if (worked) UpdateStats();
    inbox_.Settle(scheduler_.idle() && steps_.empty() && compiling_.empty());
    return worked;
  }

  EngineStats Stats() const {
    const Inbox::Waiting waiting = inbox_.waiting();
    std::lock_guard lock(stats_mutex_);
    EngineStats stats = stats_;
    stats.waiting += waiting.requests;
    stats.queued_tokens += waiting.tokens;
    stats.first_masks = compiling_.first_masks();
    return stats;
  }

  Inbox& inbox() { return inbox_; }
  Status CheckIntegrity() const { return scheduler_.CheckIntegrity(); }

 private:
  bool TakeMessages() {
    std::vector<Inbox::Message> messages = inbox_.TakeAll();
    for (Inbox::Message& message : messages) {
      std::visit(Overloaded{
                     [&](Request& request) { Admit(std::move(request)); },
                     [&](Inbox::Cancel& cancel) { Cancel(cancel.key); },
                     [&](Inbox::StopSample& stop) {
                       scheduler_.StopSample(stop.key, stop.sample);
                       compiling_.StopSample(stop.key, stop.sample);
                     },
                     [&](Inbox::PeerReady& ready) {
                       scheduler_.PeerReady(ready.key, clock_.Now());
                       compiling_.PeerReady(ready.key);
                     },
                     [&](Inbox::Compiled& compiled) { AdmitCompiled(std::move(compiled)); },
                     [&](Inbox::Activate& activate) {
                       scheduler_.Activate(
                           activate.key, std::move(activate.first_tokens), clock_.Now());
                     },
                     [&](Inbox::Release& release) { scheduler_.ReleaseKv(release.key); },
                     [&](Inbox::Snapshot& snapshot) {
                       if (snapshot.clear) cache_.ForgetAll();
                       cache_.prefix().AddSnapshot();
                     },
                 },
                 message);
    }
    return EndExpiredCompilations() || !messages.empty();
  }

  void Admit(Request request) {
    if (!healthy_) return listener_.OnFailed({request.id, request.epoch, GivenUp()});
    if (request.grammar.empty()) return scheduler_.Add(std::move(request), clock_.Now());
    if (!scheduler_.Knows({request.id, request.epoch})) compiling_.Add(std::move(request));
  }

  void AdmitCompiled(Inbox::Compiled compiled) {
    const RequestKey key = compiled.key;
    auto ready = compiling_.Take(std::move(compiled));
    if (!ready.has_value()) return;
    if (!ready->ok()) return listener_.OnFailed({key.first, key.second, ready->status()});
    scheduler_.Add(std::move((*ready)->request), clock_.Now(), std::move((*ready)->constraint));
    for (const int32_t sample : (*ready)->stopped) scheduler_.StopSample(key, sample);
  }

  void Cancel(const RequestKey& key) {
    scheduler_.Cancel(key);
    if (!compiling_.Cancel(key)) return;
    listener_.OnFailed(
        {key.first, key.second, MakeStatus(StatusCode::kCancelled, "the request was cancelled")});
  }

  bool EndExpiredCompilations() {
    if (compiling_.empty()) return false;
    const std::vector<RequestKey> ended = compiling_.TakeExpired(clock_.Now(), !healthy_);
    for (const RequestKey& key : ended) {
      const Status why = healthy_ ? MakeStatus(StatusCode::kDeadlineExceeded,
                                               "the deadline passed while the grammar compiled")
                                  : GivenUp();
      listener_.OnFailed({key.first, key.second, why});
    }
    return !ended.empty();
  }

  // Whether a step may be planned that needs no token of the steps under way. After an error the
  // steps under way end first.
  bool CanIssue() const {
    return scheduler_.can_plan() && (steps_.empty() || steps_.newest().issued.ok());
  }

  void IssueNewest() {
    QueuedStep& step = steps_.newest();
    step.begin = last_end_.value_or(clock_.Now());
    step.sampled.resize(step.plan.logit_rows);
    step.states.resize(static_cast<size_t>(step.plan.state_rows) *
                       static_cast<size_t>(executor_.traits().hidden));
    step.issued = Issue(step);
    step.issued_at = clock_.Now();
  }

  Status Issue(QueuedStep& step) {
    if (!step.samples_later) masks_.BeginAll(step.plan);
    batch_.Build(step.plan);
    if (!step.samples_later) batch_.BuildSampling(step.plan, step.states);
    if (!step.plan.copies.empty()) {
      BATON_RETURN_IF_ERROR(executor_.CopyBlocks(step.plan.copies));
    }
    return executor_.Issue(batch_.input(), batch_.sampling(), step.sampled, Watch(step));
  }

  // Chooses the tokens of a step that was issued before the tokens of the step before it were
  // known, while the device computes it.
  void IssueSampling(QueuedStep& step) {
    if (!step.issued.ok()) return;
    batch_.BuildSampling(step.plan, step.states);
    Status status = executor_.IssueSampling(batch_.sampling(), step.sampled);
    if (status.ok()) return;
    (void)executor_.Await();
    step.issued = std::move(status);
  }

  // Plans the step after the one under way as late as the device allows, so that requests which
  // arrive meanwhile can be in it.
  void IssueAhead() {
    const QueuedStep& step = steps_.oldest();
    if (steps_.size() > 1 || !step.issued.ok()) return;
    // A row whose mask was late is computed again, and the step behind would use its token.
    if (executor_.has_late_rows()) return;
    const Time due = ahead_.Due(step.plan.work, BeganOnDevice(step));
    Time now = clock_.Now();
    for (; now < due && inbox_.Wait(due - now); now = clock_.Now()) TakeMessages();
    now = clock_.Now();
    const StepPlan* plan = scheduler_.PlanAhead(now);
    if (plan == nullptr) return;
    steps_.newest().samples_later = ChoosesByOutput(*plan);
    IssueNewest();
    ahead_.Issued(steps_.newest().issued_at - now);
  }

  static bool ChoosesByOutput(const StepPlan& plan) {
    return std::ranges::any_of(
        plan.rows, [](const PlanRow& row) { return row.sequence->request->chooses_by_output(); });
  }

  // When the device began with the step: it waited for the host where the step before ended first.
  static Time BeganOnDevice(const QueuedStep& step) { return std::max(step.begin, step.issued_at); }

  // Waits for `step`. All steps before it have been awaited.
  Status Await(const QueuedStep& step) {
    return step.issued.ok() ? executor_.Await() : step.issued;
  }

  void EndOldest() {
    QueuedStep& step = steps_.oldest();
    const Status status = Await(step);
    const Time end = clock_.Now();
    last_end_ = end;
    ++steps_run_;
    if (status.ok()) {
      failed_in_a_row_ = 0;
      const StepWork& work = step.plan.work;
      ObserveTime(work, end - step.begin);
      ahead_.Ended(work, end - BeganOnDevice(step));
      if (steps_.size() > 1) steps_[1].begin = end;
      scheduler_.Commit(step.sampled, end);
      return;
    }
    // The steps after it fail as well: on a queue they used its results, and in a pipeline the
    // group is broken.
    for (size_t i = 1; i < steps_.size(); ++i) (void)Await(steps_[i]);
    ++failed_steps_;
    last_error_ = Annotate(status, "the step failed");
    scheduler_.Abort(Status(StatusCode::kInternal, last_error_.message()));
    ++failed_in_a_row_;
    device_lost_ = status.code() == StatusCode::kUnavailable;
    if (!device_lost_ && failed_in_a_row_ < kFailedStepsToGiveUp) return;
    healthy_ = false;
    scheduler_.FailAll(GivenUp());
  }

  // In a pipeline the steps under way run at the same time, and a step ends when the slowest stage
  // has computed it. A round of as many steps is to the sequences what one step is on one rank, so
  // the model learns the time of such rounds.
  void ObserveTime(const StepWork& work, Duration took) {
    const auto under_way = executor_.queues_steps() ? 1 : static_cast<int32_t>(steps_.size());
    step_time_.Observe(work.Times(under_way), took * under_way);
    scheduler_.set_step_time(step_time_);
  }

  // Reports the plan's chunks to the listener, layer group by layer group.
  LayerWatch Watch(QueuedStep& step) {
    if (step.plan.chunks.empty()) return {};
    return {layer_marks_, [this, &step](int32_t layers) {
              step.layers_done = layers;
              if (&step == &steps_.oldest()) TellLayers(step);
            }};
  }

  // The chunks of earlier steps must have been reported, because the listener receives the chunks
  // of a request in order.
  void TellLayers(QueuedStep& step) {
    if (step.layers_done == 0) return;
    step.layers_told = true;
    for (const Outcomes::Chunk& chunk : step.plan.chunks) {
      listener_.OnKvLayers(chunk.view(), step.layers_done);
    }
  }

  Status GivenUp() const {
    if (device_lost_) {
      return MakeStatus(
          StatusCode::kUnavailable, "the engine lost its device: {}", Message(last_error_));
    }
    return MakeStatus(StatusCode::kUnavailable,
                      "the engine gave up after {} failed steps in a row: {}",
                      kFailedStepsToGiveUp,
                      Message(last_error_));
  }

  bool Deliver() {
    const Outcomes outcomes = scheduler_.TakeOutcomes();
    for (const auto& [id, epoch] : outcomes.started) listener_.OnPromptStarted(id, epoch);
    for (const Outcomes::Chunk& chunk : outcomes.chunks) {
      listener_.OnKvChunk(chunk.view());
    }
    for (const KvReservation& reservation : outcomes.reservations) {
      listener_.OnKvReserved(reservation);
    }
    if (!outcomes.tokens.empty()) listener_.OnTokens(outcomes.tokens);
    for (const Outcomes::Finish& finish : outcomes.finished) {
      listener_.OnFinished(finish.id, finish.epoch, finish.times);
    }
    if (!outcomes.tokens.empty() || !outcomes.finished.empty()) listener_.OnOutputEnd();
    // Runs after the tokens and ends: it can take long, and no client waits for it.
    scheduler_.StoreBlocks();
    const std::vector<CacheEvent> events = cache_.prefix().TakeEvents();
    for (const CacheEvent& event : events) listener_.OnCacheEvent(event);
    for (const RequestFailure& failure : outcomes.failures) listener_.OnFailed(failure);
    if (!healthy_ && !std::exchange(told_of_end_, true)) listener_.OnGaveUp(GivenUp());
    return !events.empty() || !outcomes.empty();
  }

  void UpdateStats() {
    const SchedulerCounts counts = scheduler_.Counts();
    const StepTimeModel::Fit& fit = step_time_.fit();
    EngineStats stats;
    stats.running = counts.running;
    stats.waiting = counts.waiting + compiling_.size();
    stats.awaiting_kv = counts.awaiting_kv;
    stats.queued_tokens = counts.queued_tokens;
    stats.blocks_total = cache_.total();
    stats.blocks_free = cache_.available();
    stats.blocks_expected = counts.expected_blocks;
    stats.blocks_cached = cache_.cached();
    stats.blocks_leaked = scheduler_.LeakedBlocks();
    stats.blocks_by_group.assign(cache_.held().begin(), cache_.held().end());
    stats.leases = counts.held_leases;
    stats.held = counts.held;
    stats.steps = steps_run_;
    stats.failed_steps = failed_steps_;
    stats.bubble_seconds = ToSeconds(executor_.bubble());
    stats.ranks = executor_.rank_times();
    stats.prompt_tokens = counts.prompt_tokens;
    stats.cached_tokens = counts.cached_tokens;
    stats.output_tokens = counts.output_tokens;
    stats.drafts = counts.drafts;
    stats.accepted_drafts = counts.accepted_drafts;
    stats.preemptions = counts.preemptions;
    stats.step_ms_base = fit.base_ms;
    stats.step_ms_per_token = fit.decode_ms;
    stats.step_ms_per_token_context = fit.decode_context_ms;
    stats.step_ms_per_prompt_token = fit.prompt_token_ms;
    stats.step_ms_per_prompt_token_context = fit.prompt_context_ms;
    stats.cache_digest = cache_.prefix().digest();
    stats.cache_sequence = cache_.prefix().last_sequence();
    stats.healthy = healthy_;
    std::lock_guard lock(stats_mutex_);
    stats_ = std::move(stats);
  }

  Executor& executor_;
  EngineListener& listener_;
  const Clock& clock_;
  KvCache cache_;
  Scheduler scheduler_;
  StepQueue& steps_ = scheduler_.steps();
  std::vector<int32_t> layer_marks_;  // the number of layers up to the end of each layer group
  StepTimeModel step_time_;
  Inbox inbox_;
  SequenceMasks masks_;
  GrammarQueue compiling_;
  Batch batch_;
  StepAhead ahead_;
  // When the last step ended; empty after an idle Step(). The host's work between two steps counts
  // as time of the later step, because decoding sequences wait for it as well.
  std::optional<Time> last_end_;
  int64_t steps_run_ = 0;
  int64_t failed_steps_ = 0;
  int failed_in_a_row_ = 0;
  bool healthy_ = true;
  bool device_lost_ = false;
  bool told_of_end_ = false;  // OnGaveUp was called
  Status last_error_;
  mutable std::mutex stats_mutex_;
  EngineStats stats_;
};

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                 Executor& executor,
                                                 EngineListener& listener,
                                                 const Clock& clock,
                                                 GrammarCompiler* grammars) {
  BATON_RETURN_IF_ERROR(CheckOptions(options, executor.traits()));
  BATON_RETURN_IF_ERROR(CheckStateFits(executor));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(options, executor, listener, clock, grammars)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

void Engine::Submit(Request request) {
  impl_->inbox().Push(std::move(request));
}

void Engine::Cancel(RequestId id, Epoch epoch) {
  impl_->inbox().Push(Inbox::Cancel{{id, epoch}});
}

void Engine::StopSample(RequestId id, Epoch epoch, int32_t sample) {
  impl_->inbox().Push(Inbox::StopSample{{id, epoch}, sample});
}

void Engine::PeerReady(RequestId id, Epoch epoch) {
  impl_->inbox().Push(Inbox::PeerReady{{id, epoch}});
}

void Engine::Activate(RequestId id, Epoch epoch, std::vector<SampledToken> first_tokens) {
  impl_->inbox().Push(Inbox::Activate{{id, epoch}, std::move(first_tokens)});
}

void Engine::ReleaseKv(RequestId id, Epoch epoch) {
  impl_->inbox().Push(Inbox::Release{{id, epoch}});
}

void Engine::RequestCacheSnapshot(bool clear) {
  impl_->inbox().Push(Inbox::Snapshot{clear});
}

bool Engine::Step() {
  return impl_->Step();
}

void Engine::BusyPollFor(Duration duration) {
  impl_->inbox().BusyPollFor(duration);
}

void Engine::WaitForWork(Duration timeout) {
  impl_->inbox().Wait(timeout);
}

bool Engine::WaitUntilIdle(Duration timeout) {
  return impl_->inbox().WaitSettled(timeout);
}

EngineStats Engine::Stats() const {
  return impl_->Stats();
}

Status Engine::CheckIntegrity() const {
  return impl_->CheckIntegrity();
}

}  // namespace baton
