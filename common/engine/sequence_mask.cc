#include "common/engine/sequence_mask.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton {
namespace {

// Why a mask that allows no token does so. All of these are the request's own fault, except a token
// that its grammar does not allow, which was never sampled under a mask.
Status WhyNothing(const GrammarMatcher& matcher, bool accepted) {
  if (!matcher.failure().ok()) return matcher.failure();
  if (!accepted) {
    return MakeStatus(StatusCode::kInternal, "the output so far does not match its grammar");
  }
  return InvalidArgument(
      "no token of the model can continue the output as its grammar demands, and it cannot end");
}

}  // namespace

// The tokens of the newest job, drafts included, that are in `output`.
size_t SequenceMask::Kept(std::span<const TokenId> output) const {
  const auto behind = output.subspan(given_);
  const auto right = std::ranges::mismatch(behind, drafts_).in1 - behind.begin();
  return given_ + static_cast<size_t>(right);
}

bool SequenceMask::Prepare(std::span<const TokenId> output, std::span<const TokenId> drafts) {
  const size_t kept = Kept(output);
  if (job_ != nullptr && drafts.empty() && kept == output.size()) return false;
  // A job that is computed is of no use any more.
  if (job_ == nullptr || !job_->computed()) job_ = std::make_shared<Job>();
  job_->kept = kept;
  const auto added = output.subspan(kept);
  job_->added.assign(added.begin(), added.end());
  job_->added.insert(job_->added.end(), drafts.begin(), drafts.end());
  job_->drafts = drafts.size();
  std::vector<Slot>& slots = job_->slots;
  while (slots.size() <= drafts.size()) slots.push_back({TokenMask(vocabulary_), OkStatus()});
  for (Slot& slot : std::span(slots).first(drafts.size() + 1)) slot.mask.Begin();
  given_ = output.size();
  drafts_.assign(drafts.begin(), drafts.end());
  std::lock_guard lock(mutex_);
  BATON_CHECK(next_ == nullptr, "a third job before the first one has ended");
  next_ = job_;
  return !std::exchange(computing_, true);
}

const SequenceMask::Slot& SequenceMask::SlotAfter(size_t output) const {
  BATON_CHECK(job_ != nullptr && output >= given_ && output - given_ <= job_->drafts,
              "no mask has begun after {} output tokens",
              output);
  return job_->slots[output - given_];
}

// Takes wrong drafts back. The tokens of `output` that the matcher lacks; nothing while a thread
// uses the matcher, or when its state was lost.
std::optional<std::span<const TokenId>> SequenceMask::Idle(std::span<const TokenId> output) {
  if (job_ == nullptr || !job_->computed()) return std::nullopt;
  const size_t kept = Kept(output);
  GoBackTo(kept);
  drafts_.resize(kept - given_);
  if (matcher_ == nullptr) return std::nullopt;
  return output.subspan(kept);
}

size_t SequenceMask::Allowed(std::span<const TokenId> output, std::span<const TokenId> drafts) {
  const auto added = Idle(output);
  if (!added.has_value()) return 0;
  std::vector<TokenId> tokens(added->begin(), added->end());
  tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  const size_t allowed = matcher_->CountAllowed(tokens);
  return allowed - std::min(allowed, added->size());
}

std::vector<TokenId> SequenceMask::Forced(std::span<const TokenId> output, size_t most) {
  const auto added = Idle(output);
  if (!added.has_value()) return {};
  return matcher_->Forced(*added, most);
}

void SequenceMask::Compute() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::lock_guard lock(mutex_);
      job = std::exchange(next_, nullptr);
      computing_ = job != nullptr;
    }
    if (job == nullptr) return;
    Run(*job);
  }
}

bool SequenceMask::HasNext() {
  std::lock_guard lock(mutex_);
  return next_ != nullptr;
}

// A mask without a token ends the request with the slot's failure.
void SequenceMask::Run(Job& job) {
  GoBackTo(job.kept);
  bool accepted = true;
  if (matcher_ == nullptr) {
    matcher_ = grammar_->NewMatcher(stop_tokens_);
    accepted = Take(std::exchange(taken_, {}));
  }
  const size_t drafts = job.drafts;
  const auto added = std::span<const TokenId>(job.added);
  const size_t known = added.size() - drafts;
  accepted = accepted && Take(added.first(known));
  Fill(job.slots[0], accepted);
  for (size_t i = 0; i < drafts; ++i) {
    // The engine waits for the next job, and for no more masks of this one.
    if (HasNext()) return;
    accepted = accepted && Take(added.subspan(known + i, 1));
    Fill(job.slots[i + 1], accepted);
  }
}

// A matcher that has failed, at a draft that was not chosen, cannot go back.
void SequenceMask::GoBackTo(size_t kept) {
  if (matcher_ != nullptr && !matcher_->failure().ok()) matcher_.reset();
  if (kept >= taken_.size()) return;
  if (matcher_ != nullptr) matcher_->GoBack(taken_.size() - kept);
  taken_.resize(kept);
}

bool SequenceMask::Take(std::span<const TokenId> tokens) {
  return std::ranges::all_of(tokens, [&](TokenId token) {
    const bool accepted = matcher_->Accept(token);
    if (accepted) taken_.push_back(token);
    return accepted;
  });
}

void SequenceMask::Fill(Slot& slot, bool accepted) {
  const auto words = slot.mask.words();
  if (accepted) {
    matcher_->FillMask(words);
  } else {
    std::ranges::fill(words, 0);
  }
  const bool empty = std::ranges::all_of(words, [](uint32_t word) { return word == 0; });
  slot.failure = empty ? WhyNothing(*matcher_, accepted) : OkStatus();
  slot.mask.Finish();
}

}  // namespace baton
