#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"
#include "common/engine/scheduler.h"
#include "common/engine/sequence_masks.h"

namespace baton {
namespace {

// On a pipeline, the later stages idle during the first chunk of a prompt, and the first stage
// during the last chunk. But a small chunk computes each token more slowly. So a step takes the
// first part of a stage's share of max_step_tokens, and near the end of a prompt the second part,
// and at least kLeastShare tokens. There are no sizes between the two, because most would leave
// some of a GPU's SMs idle at the end of a kernel.
constexpr int32_t kPartOfShare = 2;
constexpr int32_t kLastPartOfShare = 4;
constexpr int32_t kLeastShare = 64;
// Predicted step times are trusted up to this multiple of the most prompt tokens in one measured
// step.
constexpr double kFarthest = 4;
// The most tokens of a step that are computed singly, and the most positions in their contexts
// together: each has a block table of its own on the device.
constexpr int32_t kMaxSingleRows = 1024;
constexpr int32_t kMaxSinglePositions = 1 << 22;

}  // namespace

const StepPlan& Scheduler::Plan(Time now) {
  BATON_CHECK(can_plan(), "Plan was called while {} plans are under way", steps_.size());
  EndExpired(now);
  plan_ = &steps_.Prepare().plan;
  if (short_of_blocks_ && !steps_.empty()) return *plan_;
  share_ = ShareOfStep();
  short_of_blocks_ = false;
  PlanDecodes();
  PlanPrompts();
  if (!short_of_blocks_) AdmitWaiting(now);
  LeaseChunks();
  if (!plan_->rows.empty()) steps_.Push();
  return *plan_;
}

const StepPlan* Scheduler::PlanAhead(Time now) {
  EndExpired(now);
  if (steps_.size() == 1) AdmitReservations(now);
  if (!CanPlanAhead()) return nullptr;
  AppendPlaceholders();
  plan_ = &steps_.Prepare().plan;
  PlanDecodes();
  if (plan_->rows.empty()) return nullptr;
  steps_.Push();
  return plan_;
}

bool Scheduler::CanPlanAhead() {
  if (steps_.size() != 1) return false;
  if (options_.engine.lookup_drafts > 0) return false;  // drafts follow known tokens
  const StepPlan& plan = steps_.newest().plan;
  if (plan.decode_rows != plan.rows.size()) return false;
  const auto decodes = [this](const Sequence& sequence) {
    const ActiveRequest& active = *sequence.request;
    if (!active.forked) return false;
    if (!options_.samples_later) return !active.chooses_by_output();
    // Behind a step, the tokens of all rows wait for the masks of the next one.
    return active.grammar == nullptr || active.grammar->recent_call() <= SequenceMasks::kLongCall;
  };
  const auto plain = [&](const PlanRow& row) { return decodes(*row.sequence); };
  if (!std::ranges::all_of(plan.rows, plain)) return false;
  const auto ready = [&](const Sequence* sequence) {
    return decodes(*sequence) && sequence->remaining() == 1;
  };
  if (!std::ranges::all_of(running_, ready)) return false;
  // Each sequence takes at most one block of each group, so no sequence is preempted.
  if (std::cmp_less(cache_.available(), running_.size() * cache_.groups())) return false;
  if (waiting_reservations_ > options_.engine.max_waiting_reservations) return false;
  return waiting_.empty() || Blocked(**waiting_.begin());
}

// Appends a placeholder (ChosenBefore) for each token that the plan under way will choose.
void Scheduler::AppendPlaceholders() {
  StepPlan& plan = steps_.newest().plan;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Sequence& sequence = *plan.rows[i].sequence;
    sequence.under_way -= plan.rows[i].count;
    if (sequence.state != SequenceState::kRunning) continue;
    ++sequence.computed;
    sequence.tokens.push_back(ChosenBefore(static_cast<int32_t>(i)));
  }
  plan.foreseen = true;
}

// Runs before the step, because peers may read the first layers of a chunk while the last layers
// are computed.
void Scheduler::LeaseChunks() {
  for (const PlanRow& row : plan_->rows) {
    if (row.sequence->request->request.kind != RequestKind::kPrefill) continue;
    auto chunk = LeaseChunk(*row.sequence, row.first + row.count, row.samples > 0);
    if (chunk) plan_->chunks.push_back(*std::move(chunk));
  }
}

// Divides the work among the steps under way: each decodes equally many sequences, and the prompts
// in progress and in the queue are in all of them.
Scheduler::StepShare Scheduler::ShareOfStep() const {
  const int32_t budget = options_.engine.max_step_tokens;
  if (options_.stages == 1) return {.tokens = budget};
  // Sequences will be preempted. This step has all decodes, so that those that rank first get the
  // blocks.
  if (short_of_blocks_) return {.tokens = budget};
  int64_t decodes = 0;
  int64_t prompt_tokens = waiting_tokens_;
  for (const Sequence* sequence : running_) {
    if (sequence->remaining() == 1) {
      ++decodes;
    } else {
      prompt_tokens += sequence->unplanned();
    }
  }
  const auto part = [](int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; };
  const int64_t stages = options_.stages;
  const int64_t last = std::max<int64_t>(part(budget, stages * kLastPartOfShare), kLeastShare);
  const int64_t usual = std::max(part(budget, stages * kPartOfShare), last);
  return {.tokens = static_cast<int32_t>(part(budget, stages)),
          .decodes = static_cast<int32_t>(part(decodes, stages)),
          .prompt_tokens = static_cast<int32_t>(prompt_tokens >= usual + last ? usual : last)};
}

// Sequences are planned in rank order, and the lowest ranked one is preempted first. A preempted
// sequence therefore has no row in the plan yet. The blocks of sequences that are under way cannot
// be taken, so preemption waits for the steps under way.
// Prompts that take their blocks chunk by chunk get the blocks here, too.
void Scheduler::PlanDecodes() {
  SetDraftBudget();
  for (size_t next = 0; next < running_.size();) {
    const size_t rank = next++;
    Sequence& sequence = *running_[rank];
    // A prompt whose blocks slide is in one step at a time.
    if (sequence.under_way > 0) continue;
    const bool decodes = sequence.remaining() == 1;
    if (!decodes && !slides(sequence)) continue;
    if (decodes && std::cmp_equal(plan_->rows.size(), share_.decodes)) continue;
    // The foreseen token is the last one that the sequence may have.
    if (decodes && sequence.length() >= sequence.request->longest) continue;
    const bool fits = MakeRoomOrPreempt(rank);
    if (sequence.state != SequenceState::kRunning) next = rank;  // another one has its rank now
    if (short_of_blocks_ && !steps_.empty() && !fits) break;
    if (!fits || !decodes) continue;
    const int32_t drafts = draft_budget_ > 0 ? AppendDrafts(sequence) : 0;
    AddRow(sequence, 1 + drafts, drafts > 0 ? RowKind::kVerify : RowKind::kDecode);
  }
  plan_->decode_rows = plan_->rows.size();
  plan_->decode_tokens = plan_->tokens;
}

// Makes room for the next token or chunk of the running sequence at `rank`, and preempts the lowest
// ranked sequences until there is room. False when the sequence itself was preempted, or when
// preemption must wait for the steps under way.
bool Scheduler::MakeRoomOrPreempt(size_t rank) {
  Sequence& sequence = *running_[rank];
  const int32_t remaining = sequence.remaining();
  const int32_t count = remaining == 1 ? 1 : std::min(remaining, room_.chunk_tokens());
  bool fits = MakeRoom(sequence, count);
  if (!fits && !steps_.empty()) {
    short_of_blocks_ = true;
    return false;
  }
  while (!fits && sequence.state == SequenceState::kRunning) {
    PreemptFrom(rank);
    fits = sequence.state == SequenceState::kRunning && MakeRoom(sequence, count);
  }
  return fits;
}

// The most tokens of the next chunk of a prompt whose blocks slide: those for which it has blocks,
// usually from PlanDecodes. No other chunk of it is under way. No other sequence uses the block of
// its next token, because sequences share only full blocks until their prompt is computed.
int32_t Scheduler::SlidingRoom(const Sequence& sequence) const {
  if (sequence.under_way > 0) return 0;
  const int32_t held = sequence.table.size() * cache_.block_tokens();
  return std::min(room_.chunk_tokens(), held - sequence.computed);
}

// Needs no blocks: a prompt receives its blocks at admission or in PlanDecodes.
void Scheduler::PlanPrompts() {
  computing_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->remaining() <= 1) continue;
    const size_t next = sequence->computed / cache_.block_tokens();
    if (next < sequence->hashes.size()) computing_.push_back(sequence->hashes[next]);
    int32_t budget = PromptBudget(sequence->planned());
    if (slides(*sequence)) budget = std::min(budget, SlidingRoom(*sequence));
    const int32_t count = ChunkOf(*sequence, budget);
    if (count > 0 && MakeStateRoom(*sequence)) AddRow(*sequence, count, RowKind::kPrompt);
  }
}

// How many tokens of a prompt this step may still take, when `context` tokens precede the first of
// them. n tokens take prompt_token_ms·n + prompt_context_ms·(context·n + n²/2). Steps far larger
// than the measured ones cannot be predicted, so the first prompts beside decodes are small.
int32_t Scheduler::PromptBudget(int32_t context) const {
  const int32_t prompt_tokens = plan_->tokens - plan_->decode_tokens;
  if (prompt_tokens >= options_.engine.full_step_tokens) return 0;
  const int32_t stages = options_.stages;
  int32_t budget = share_.tokens - plan_->tokens;
  if (stages > 1) budget = std::min(budget, share_.prompt_tokens - prompt_tokens);
  const double target = ToMillis(options_.engine.itl_target);
  // In a pipeline a prompt also delays the decodes of the other steps under way.
  const bool decodes = plan_->decode_rows > 0 || (stages > 1 && share_.decodes > 0);
  if (budget <= 0 || target <= 0 || !decodes) return budget;
  const StepTimeModel::Fit& fit = step_time_.fit();
  const double left = (target - step_time_.PredictMs(plan_->work.Times(stages))) / stages;
  const double linear = fit.prompt_token_ms + fit.prompt_context_ms * context;
  const double square = fit.prompt_context_ms / 2;
  double fitting = linear > 0 ? left / linear : 0;
  if (left > 0 && square > 0) {
    fitting = (std::sqrt(linear * linear + 4 * square * left) - linear) / (2 * square);
  }
  fitting = std::min(fitting, kFarthest * step_time_.max_prompt_tokens() / stages);
  // The first prompt always makes progress. Less than a block of another prompt is not worth a row.
  if (fitting < cache_.block_tokens()) {
    fitting = plan_->rows.size() == plan_->decode_rows ? cache_.block_tokens() : 0;
  }
  return static_cast<int32_t>(std::min<double>(fitting, budget));
}

// How many tokens the step computes of a sequence that computes its prompt or is recomputed after a
// preemption. 0: the sequence waits for a larger budget.
int32_t Scheduler::ChunkOf(const Sequence& sequence, int32_t budget) const {
  const int32_t count =
      std::clamp(std::min({budget, ScoredChunk(sequence), CheckpointChunk(sequence)}),
                 0,
                 sequence.unplanned());
  if (!options_.engine.repeat_output_singly || count == 0) return count;
  const int32_t prompt = sequence.request->request.prompt_length - sequence.planned();
  if (prompt <= 1) {
    const int32_t most = std::max(1, kMaxSinglePositions / sequence.length());
    return std::min({count, kMaxSingleRows, most});
  }
  if (count >= prompt) return prompt;
  const int32_t several = count == prompt - 1 ? count - 1 : count;
  if (several >= 2) return several;
  // When a step has less than 3 tokens, waiting for a larger budget would never end.
  return share_.tokens < 3 ? count : 0;
}

// The most tokens of the next chunk of a prompt for whose logprobs or hidden states this step still
// has logit rows. A step in which only hidden states are wanted computes no logits, so all of its
// tokens may be logit rows. Above scored_rows, nothing is left for a request that does not pool.
int32_t Scheduler::ScoredChunk(const Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  const bool only_states = plan_->state_rows == plan_->logit_rows;
  if (active.request.pools() && only_states) return sequence.unplanned();
  const int32_t scored =
      active.scored + options_.limits.scored_rows - plan_->scored - plan_->drafts;
  return scored < active.to_score ? scored - sequence.planned() : sequence.unplanned();
}

void Scheduler::AddRow(Sequence& sequence, int32_t count, RowKind kind) {
  ActiveRequest& active = *sequence.request;
  int32_t samples = 0;
  if (count == sequence.unplanned()) samples = active.forked ? 1 : active.request.samples;
  if (kind == RowKind::kVerify) samples = count;
  const int32_t first = sequence.planned();
  const bool singly =
      options_.engine.repeat_output_singly && active.request.prompt_length - first <= 1;
  const int32_t scored = std::max(0, std::min(first + count, active.to_score) - active.scored);
  plan_->rows.push_back({&sequence, first, count, samples, active.scored, scored, kind, singly});
  if (has_states()) {
    PlanRow& row = plan_->rows.back();
    row.in_state = std::exchange(sequence.in_state, false);
    // Rows after this one, which is under way, read what it writes.
    row.reads_state = sequence.read_state != nullptr && !sequence.reading;
    sequence.reading |= row.reads_state;
  }
  active.scored += scored;
  sequence.under_way += count;
  plan_->tokens += count;
  plan_->logit_rows += samples + scored;
  if (active.request.pools()) plan_->state_rows += samples + scored;
  plan_->scored += scored;
  const int64_t context = int64_t{count} * first + int64_t{count} * (count + 1) / 2;
  StepWork& work = plan_->work;
  const bool decodes = count == 1 || singly;
  (decodes ? work.decodes : work.prompt_tokens) += count;
  (decodes ? work.decode_context : work.prompt_context) += context;
}

// Gives `sequence` the blocks for its next `count` tokens. A block that others use is copied first.
// False when too few blocks are available.
// Gives `sequence` blocks up to `blocks` blocks of tokens. False when too few are available.
bool Scheduler::Grow(Sequence& sequence, int32_t blocks) {
  const int32_t before = cache_.available();
  if (!sequence.table.GrowTo(blocks)) return false;
  if (slides()) return true;
  const int32_t taken = std::min(before - cache_.available(), sequence.promised);
  sequence.promised -= taken;
  promised_ -= taken;
  return true;
}

bool Scheduler::MakeRoom(Sequence& sequence, int32_t count) {
  if (has_states() && !MakeStateRoom(sequence)) return false;
  const int32_t need = cache_.BlocksFor(int64_t{sequence.computed} + count);
  const int32_t first = sequence.computed / cache_.block_tokens();
  if (sequence.table.HasRoom(need, first)) return true;
  if (!Grow(sequence, need)) return false;
  const int32_t before = cache_.available();
  const size_t copies = plan_->copies.size();
  if (!sequence.table.MakeExclusive(first, plan_->copies)) return false;
  for (const BlockCopy& copy : std::span(plan_->copies).subspan(copies)) {
    steps_.prepared().copied.Add(cache_, BlockId(static_cast<uint32_t>(copy.from)));
  }
  if (slides()) return true;
  const int32_t taken = std::min(before - cache_.available(), sequence.promised);
  sequence.promised -= taken;
  promised_ -= taken;
  return true;
}

// Preempts the lowest ranked sequence of those at `rank` and after it: puts it back into the queue
// at its old rank. Its full blocks stay in the prefix cache until they are needed for other
// content. A prompt that is handed off is never preempted, because a decode worker may hold blocks
// for it: with both its own wait for blocks would be part of a circle. It needs no further block,
// so the sequence at `rank` is not such a prompt.
void Scheduler::PreemptFrom(size_t rank) {
  size_t last = running_.size() - 1;
  while (last > rank && running_[last]->request->request.kind == RequestKind::kPrefill) --last;
  Sequence& sequence = *running_[last];
  BATON_CHECK(sequence.request->request.kind != RequestKind::kPrefill,
              "a prompt that is handed off holds all of its blocks");
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(last));
  slots_ -= std::exchange(sequence.slots, 0);
  promised_ -= std::exchange(sequence.promised, 0);
  sequence.table.Clear();
  sequence.read_state.reset();
  sequence.reading = false;
  sequence.in_state = false;
  sequence.computed = 0;
  sequence.MoveTo(SequenceState::kWaiting);
  Enqueue(sequence);
  ++totals_.preemptions;
  ++plan_->preempted;
}

}  // namespace baton
