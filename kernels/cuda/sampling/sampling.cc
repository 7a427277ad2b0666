#include "kernels/cuda/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/token_mask.h"

namespace baton::cuda {
namespace {

// Thread blocks that reach the device's full memory bandwidth when there are few rows.
constexpr int32_t kWantedBlocks = 528;
// Bytes of a row's results without its list of logprobs: token, failed, logprob.
constexpr size_t kRowResultBytes = 3 * sizeof(int32_t);
constexpr int32_t kMaxRows = 1 << 16;
// Added to the logit of a token that is to be chosen; above all logits.
constexpr float kForcingBias = 1e30f;
constexpr int32_t kShortTop = 32;  // all lists of logprobs up to this length use the same graph

SamplingKind KindOf(const SamplingParams& params) {
  if (params.temperature == 0) return SamplingKind::kGreedy;
  return params.top_k > 0 || params.top_p < 1.0f ? SamplingKind::kSorted : SamplingKind::kUnsorted;
}

// The number of tokens in one range of a row: a multiple of 4, so that all ranges begin at a
// multiple of 4.
int32_t RangeOf(int32_t rows, int32_t vocabulary) {
  const int32_t least = CeilDiv(vocabulary, kMaxRange);
  const int32_t useful = std::max(1, vocabulary / 1024);
  const int32_t wanted = std::clamp(CeilDiv(kWantedBlocks, rows), 1, std::min(useful, kMaxSplits));
  const int32_t splits = std::max(least, wanted);
  return RoundUp(CeilDiv(vocabulary, splits), 4);
}

}  // namespace

class Sampling::Impl {
 public:
  StatusOr<SamplingPlan> Plan(std::span<const SamplingRow> rows,
                              int32_t padded_rows,
                              int32_t vocabulary,
                              StepBuffer& fixed,
                              StepBuffer& lists,
                              const std::vector<bool>& late_rows);
  cudaError_t Launch(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream);
  Status Reserve() { return results_.Reserve(kMaxRows * kRowResultBytes); }
  int32_t* tokens() { return results_.at<int32_t>(); }
  Status Fetch(size_t slot, cudaStream_t stream);
  void Collect(size_t slot, std::span<SampledToken> out) const;

 private:
  // The results of one step on the host.
  struct Fetched {
    PinnedMemory memory;
    PinnedMemory lists;
    size_t rows = 0;   // padded
    int32_t room = 0;  // capacity of a row's list of logprobs
    int32_t vocabulary = 0;
    std::vector<int32_t> tops;  // SamplingParams::top_logprobs of each row
    std::vector<bool> late;     // rows whose mask came too late; empty: none
  };

  SamplingRowArgs Describe(const SamplingRow& row, StepBuffer& lists);
  uint64_t WriteBias(StepBuffer& lists, int32_t& count);
  Status Place(int64_t undo_entries);

  DeviceMemory scratch_;
  DeviceMemory undo_;
  DeviceMemory results_;  // never moves, because the next step reads the tokens from it
  DeviceMemory lists_;
  std::array<Fetched, kSlots> fetched_;
  size_t row_room_ = 0;        // rows for which scratch_ has room
  SamplingPlan plan_;          // the last plan
  std::vector<int32_t> tops_;  // Fetched::tops of the last plan
  std::vector<bool> late_;     // Fetched::late of the last plan
  std::vector<SamplingRowArgs> args_;
  std::vector<LogitBias> bias_;
};

StatusOr<SamplingPlan> Sampling::Impl::Plan(std::span<const SamplingRow> rows,
                                            int32_t padded_rows,
                                            int32_t vocabulary,
                                            StepBuffer& fixed,
                                            StepBuffer& lists,
                                            const std::vector<bool>& late_rows) {
  const auto late = [&](size_t row) { return row < late_rows.size() && late_rows[row]; };
  late_ = late_rows;
  BATON_CHECK(padded_rows > 0 && rows.size() <= static_cast<size_t>(padded_rows),
              "{} rows padded to {}",
              rows.size(),
              padded_rows);
  if (vocabulary < 1 || vocabulary > kMaxVocabulary) {
    return InvalidArgument(
        "logits of {} tokens; sampling takes 1 to {}", vocabulary, kMaxVocabulary);
  }
  if (padded_rows > kMaxRows) {
    return InvalidArgument("{} rows of logits; sampling takes up to {}", padded_rows, kMaxRows);
  }
  plan_ = {};
  tops_.clear();
  for (const SamplingRow& row : rows) tops_.push_back(row.params->top_logprobs);
  plan_.rows = padded_rows;
  plan_.vocabulary = vocabulary;
  plan_.range = RangeOf(padded_rows, vocabulary);
  plan_.splits = CeilDiv(vocabulary, plan_.range);
  args_.assign(static_cast<size_t>(padded_rows), {});
  int64_t undo_entries = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (late(i)) continue;  // as padding
    SamplingRowArgs& args = args_[i] = Describe(rows[i], lists);
    args.undo_at = undo_entries;
    undo_entries +=
        int64_t{args.bias_count} + args.banned_count + args.output_count + args.prompt_count;
    const int32_t top = std::min(args.params.top_logprobs, vocabulary);
    if (top > kMaxCandidates) {
      return InvalidArgument("top_logprobs is {}; the device lists up to {}", top, kMaxCandidates);
    }
    if (top > 0) {
      plan_.top = std::max(
          {plan_.top, kShortTop, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(top)))});
    }
    if (args.edited()) plan_.work |= kEditWork;
    if (args.kind == SamplingKind::kUnsorted) plan_.work |= kUnsortedWork;
    if (args.kind == SamplingKind::kSorted) plan_.work |= kSortedWork;
    if (args.params.top_logprobs >= 0) plan_.work |= kLogprobWork;
  }
  const bool undo = (plan_.work & kEditWork) != 0 && (plan_.work & kLogprobWork) != 0;
  BATON_RETURN_IF_ERROR(Place(undo ? undo_entries : 0));
  plan_.args = fixed.Write(std::span<const SamplingRowArgs>(args_));
  plan_.lists = lists.base();
  return plan_;
}

SamplingRowArgs Sampling::Impl::Describe(const SamplingRow& row, StepBuffer& lists) {
  const SamplingParams& params = *row.params;
  SamplingRowArgs args;
  args.kind = KindOf(params);
  args.params = params;
  args.scale = std::min(1.0f / params.temperature, 1e30f);
  args.draw = UniformDraw(params.seed, row.position);
  bias_.clear();
  for (const auto& [token, bias] : params.logit_bias) bias_.push_back({token, bias});
  if (row.forced != kNoToken) {
    args.kind = SamplingKind::kGreedy;
    bias_ = {{row.forced, kForcingBias}};
  }
  if (!bias_.empty()) args.bias_at = WriteBias(lists, args.bias_count);
  const auto write = [&](std::span<const TokenId> tokens, uint64_t& at, int32_t& count) {
    if (tokens.empty()) return;
    at = lists.WriteAt(tokens);
    count = static_cast<int32_t>(tokens.size());
  };
  write(row.banned, args.banned_at, args.banned_count);
  if (row.mask != nullptr) {
    args.mask_at = lists.WriteAt(row.mask->allowed());
    args.masked = 1;
  }
  if (params.depends_on_output()) write(row.output, args.output_at, args.output_count);
  if (params.repetition_penalty != 1.0f) write(row.prompt, args.prompt_at, args.prompt_count);
  return args;
}

uint64_t Sampling::Impl::WriteBias(StepBuffer& lists, int32_t& count) {
  const auto before = [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; };
  if (!std::is_sorted(bias_.begin(), bias_.end(), before)) {
    std::stable_sort(bias_.begin(), bias_.end(), before);
  }
  count = static_cast<int32_t>(bias_.size());
  return lists.WriteAt(std::span<const LogitBias>(bias_));
}

// Sets the addresses in plan_. They change only when a buffer grows.
Status Sampling::Impl::Place(int64_t undo_entries) {
  const auto rows = static_cast<size_t>(plan_.rows);
  row_room_ = std::max({row_room_, std::bit_ceil(rows), size_t{64}});
  Layout scratch;
  const size_t partials = scratch.Take(row_room_ * kMaxSplits * sizeof(uint64_t));
  const size_t finished = scratch.Take(row_room_ * sizeof(uint32_t));
  const size_t best = scratch.Take(row_room_ * sizeof(uint64_t));
  const size_t unedited = scratch.Take(row_room_ * sizeof(uint64_t));
  const size_t log_sums = scratch.Take(row_room_ * sizeof(double));
  BATON_RETURN_IF_ERROR(scratch_.Reserve(scratch.size()));
  plan_.partials = scratch_.at<uint64_t>(partials);
  plan_.finished = scratch_.at<uint32_t>(finished);
  plan_.best = scratch_.at<uint64_t>(best);
  plan_.unedited = scratch_.at<uint64_t>(unedited);
  plan_.log_sums = scratch_.at<double>(log_sums);
  if (undo_entries > 0) {
    const auto entries = std::bit_ceil(static_cast<uint64_t>(undo_entries));
    BATON_RETURN_IF_ERROR(undo_.Reserve(entries * sizeof(float)));
  }
  plan_.undo = undo_.at<float>();
  BATON_RETURN_IF_ERROR(
      lists_.Reserve(row_room_ * static_cast<size_t>(plan_.top) * sizeof(TokenLogprob)));
  plan_.tokens = results_.at<int32_t>();
  plan_.failed = plan_.tokens + rows;
  plan_.logprobs = reinterpret_cast<float*>(plan_.failed + rows);
  plan_.top_list = lists_.at<TokenLogprob>();
  return OkStatus();
}

cudaError_t Sampling::Impl::Launch(const SamplingPlan& plan,
                                   const Tensor& logits,
                                   cudaStream_t stream) {
  return LaunchSampling(plan, logits, stream);
}

Status Sampling::Impl::Fetch(size_t slot, cudaStream_t stream) {
  Fetched& to = fetched_[slot];
  to.rows = static_cast<size_t>(plan_.rows);
  to.room = plan_.top;
  to.vocabulary = plan_.vocabulary;
  to.tops = tops_;
  to.late = late_;
  const auto fetch = [&](PinnedMemory& memory, const void* from, size_t bytes) -> Status {
    if (bytes == 0) return OkStatus();
    BATON_RETURN_IF_ERROR(memory.Reserve(bytes));
    BATON_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(memory.data(), from, bytes, cudaMemcpyDeviceToHost, stream));
    return OkStatus();
  };
  BATON_RETURN_IF_ERROR(fetch(to.memory, plan_.tokens, to.rows * kRowResultBytes));
  return fetch(
      to.lists, plan_.top_list, to.rows * static_cast<size_t>(to.room) * sizeof(TokenLogprob));
}

void Sampling::Impl::Collect(size_t slot, std::span<SampledToken> out) const {
  const Fetched& from = fetched_[slot];
  BATON_CHECK(out.size() == from.tops.size(), "{} results of {}", out.size(), from.tops.size());
  const auto* tokens = reinterpret_cast<const int32_t*>(from.memory.data());
  const int32_t* failed = tokens + from.rows;
  const auto* logprobs = reinterpret_cast<const float*>(failed + from.rows);
  const auto* top_list = reinterpret_cast<const TokenLogprob*>(from.lists.data());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = {};
    out[i].token = failed[i] != 0 ? kNoToken : tokens[i];
    const bool late = i < from.late.size() && from.late[i];
    if (late) out[i].token = kLateToken;
    if (failed[i] != 0 || late) continue;
    const int32_t top = from.tops[i];
    if (top < 0) continue;
    out[i].logprob = logprobs[i];
    const TokenLogprob* list = top_list + i * static_cast<size_t>(from.room);
    const int32_t listed = std::min(top, from.vocabulary);
    for (int32_t k = 0; k < listed && list[k].token >= 0; ++k) out[i].top.push_back(list[k]);
  }
}

Sampling::Sampling(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Sampling::~Sampling() = default;

StatusOr<std::unique_ptr<Sampling>> Sampling::Create() {
  auto impl = std::make_unique<Impl>();
  BATON_RETURN_IF_ERROR(impl->Reserve());
  return std::unique_ptr<Sampling>(new Sampling(std::move(impl)));
}

StatusOr<SamplingPlan> Sampling::Plan(std::span<const SamplingRow> rows,
                                      int32_t padded_rows,
                                      int32_t vocabulary,
                                      StepBuffer& fixed,
                                      StepBuffer& lists,
                                      const std::vector<bool>& late) {
  return impl_->Plan(rows, padded_rows, vocabulary, fixed, lists, late);
}

cudaError_t Sampling::Launch(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream) {
  return impl_->Launch(plan, logits, stream);
}

int32_t* Sampling::tokens() {
  return impl_->tokens();
}

Status Sampling::Fetch(size_t slot, cudaStream_t stream) {
  return impl_->Fetch(slot, stream);
}

void Sampling::Collect(size_t slot, std::span<SampledToken> out) const {
  impl_->Collect(slot, out);
}

}  // namespace baton::cuda
