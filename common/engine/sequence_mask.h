#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/base/token_id.h"
#include "common/grammar/grammar.h"
#include "kernels/token_mask.h"

namespace baton {

// The grammar's state of one sequence, and the masks of its next tokens: of the token after its
// output, and where a step verifies drafts, of the token after each draft. The masks of one row are
// one job, which a thread of SequenceMasks computes in order; a second job waits for the first one,
// which then stops at the next draft. The matcher goes back when a draft was not chosen.
//
// All methods but Compute are for the engine's thread; Compute is for any thread.
class SequenceMask final {
 public:
  SequenceMask(int32_t vocabulary,
               std::shared_ptr<const Grammar> grammar,
               std::span<const TokenId> stop_tokens)
      : vocabulary_(vocabulary),
        grammar_(std::move(grammar)),
        stop_tokens_(stop_tokens.begin(), stop_tokens.end()) {}

  // Begins the masks after `output`, and after each of `drafts` behind it, unless that after
  // `output` has begun and there are no drafts. True: the caller must have Compute called.
  bool Prepare(std::span<const TokenId> output, std::span<const TokenId> drafts);
  // Computes the masks that have begun.
  void Compute();

  // The mask of the token after `output` output tokens. It has begun.
  const TokenMask& After(size_t output) const { return SlotAfter(output).mask; }
  // Why this mask allows no token; to be read when the mask is computed. OK: it allows some.
  const Status& FailureAfter(size_t output) const { return SlotAfter(output).failure; }
  // How many of `drafts` the grammar allows after `output` (GrammarMatcher::CountAllowed). None
  // while masks are being computed.
  size_t Allowed(std::span<const TokenId> output, std::span<const TokenId> drafts);
  // Drafts of a text that must follow `output`, at most `most` (GrammarMatcher::Forced). None while
  // masks are being computed.
  std::vector<TokenId> Forced(std::span<const TokenId> output, size_t most);

 private:
  struct Slot {
    TokenMask mask;
    Status failure;
  };
  struct Job {
    size_t kept = 0;             // tokens that the matcher keeps
    std::vector<TokenId> added;  // that it takes after these; the last of them are drafts
    size_t drafts = 0;           // how many of them
    std::vector<Slot> slots;     // before the first draft and after each of them, or more

    bool computed() const { return slots[drafts].mask.WaitUntil(Time()); }
  };

  const Slot& SlotAfter(size_t output) const;
  size_t Kept(std::span<const TokenId> output) const;
  std::optional<std::span<const TokenId>> Idle(std::span<const TokenId> output);
  void GoBackTo(size_t kept);
  bool Take(std::span<const TokenId> tokens);
  void Fill(Slot& slot, bool accepted);
  void Run(Job& job);
  bool HasNext();

  const int32_t vocabulary_;
  const std::shared_ptr<const Grammar> grammar_;
  const std::vector<TokenId> stop_tokens_;

  // The engine's thread: the newest job, the output before its first mask, and its drafts.
  std::shared_ptr<Job> job_;
  size_t given_ = 0;
  std::vector<TokenId> drafts_;

  // The thread that computes, and the engine's while no mask is being computed.
  std::unique_ptr<GrammarMatcher> matcher_;  // null: to be made, because its state was lost
  std::vector<TokenId> taken_;               // the tokens that it has

  std::mutex mutex_;
  std::shared_ptr<Job> next_;  // not taken by Compute yet
  bool computing_ = false;     // Compute runs or was asked for
};

}  // namespace baton
