#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/grammar/grammar.h"

namespace baton {

// Holds the masks of fake grammars back. Thread-safe.
class MaskGate final {
 public:
  void Hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
  }
  void Release() {
    {
      std::lock_guard lock(mutex_);
      held_ = false;
    }
    released_.notify_all();
  }
  // Waits while masks are held, but not for ever, so that a test which waits for them fails.
  void Pass() {
    std::unique_lock lock(mutex_);
    released_.wait_for(lock, std::chrono::seconds(5), [&] { return !held_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
};

// From `length` tokens on nothing may follow, because of `failure`; when it is OK, because the
// grammar has a dead end.
struct OutputEnd {
  size_t length = 0;
  Status failure;
};

// After an output whose token ids have the sum s, the tokens t with (t + s) % 5 == 0 may follow,
// and from `least` tokens on a stop token. A mask of a wrong state therefore shows in the tokens.
class FakeGrammar final : public Grammar {
 public:
  explicit FakeGrammar(size_t least,
                       MaskGate* gate = nullptr,
                       std::optional<OutputEnd> end = std::nullopt)
      : least_(least), gate_(gate), end_(std::move(end)) {}

  std::unique_ptr<GrammarMatcher> NewMatcher(std::span<const TokenId> stop_tokens) const override {
    return std::make_unique<Matcher>(*this, stop_tokens);
  }
  size_t bytes() const override { return sizeof(*this); }
  Duration recent_call() const override { return calls_take_; }

  // What recent_call says.
  void CallsTake(Duration time) { calls_take_ = time; }

 private:
  class Matcher final : public GrammarMatcher {
   public:
    Matcher(const FakeGrammar& grammar, std::span<const TokenId> stop_tokens)
        : least_(grammar.least_),
          gate_(grammar.gate_),
          end_(grammar.end_),
          stops_(stop_tokens.begin(), stop_tokens.end()) {}

    bool Accept(TokenId token) override {
      if (!Allows(token)) return false;
      sum_ += token;
      ++length_;
      return true;
    }
    void FillMask(std::span<uint32_t> mask) override {
      if (gate_ != nullptr) gate_->Pass();
      std::ranges::fill(mask, 0);
      if (HasEnded()) return;
      for (size_t token = 0; token < mask.size() * 32; ++token) {
        const auto allowed = static_cast<uint32_t>(Allows(static_cast<TokenId>(token)));
        mask[token / 32] |= allowed << token % 32;
      }
    }

    Status failure() const override { return HasEnded() ? end_->failure : OkStatus(); }

   private:
    bool HasEnded() const { return end_.has_value() && length_ >= end_->length; }
    bool Allows(TokenId token) const {
      const bool stop = std::ranges::count(stops_, token) > 0;
      return stop ? length_ >= least_ : (token + sum_) % 5 == 0;
    }

    const size_t least_;
    MaskGate* const gate_;
    const std::optional<OutputEnd> end_;
    const std::vector<TokenId> stops_;
    int64_t sum_ = 0;
    size_t length_ = 0;
  };

  const size_t least_;
  MaskGate* const gate_;
  const std::optional<OutputEnd> end_;
  Duration calls_take_{};
};

// Compiles the spec "N" to FakeGrammar(N), and refuses "bad". While it holds, nothing is compiled.
class FakeGrammarCompiler final : public GrammarCompiler {
 public:
  void Compile(const std::string& spec,
               uint64_t client,
               std::weak_ptr<const void> wanted,
               std::function<void(CompiledGrammar)> done) override {
    clients_.push_back(client);
    wanted_.push_back(wanted);
    if (held_) {
      waiting_.emplace_back(spec, std::move(done));
      return;
    }
    Answer(spec, done);
  }

  // Of all grammars of this compiler.
  MaskGate& masks() { return masks_; }
  // For whom each grammar was compiled.
  const std::vector<uint64_t>& clients() const { return clients_; }
  // Whether the request still waits for whose grammar Compile was called `index` calls after the
  // first.
  bool wanted(size_t index) const { return !wanted_.at(index).expired(); }
  // The outputs of later grammars end with `end`.
  void EndAt(OutputEnd end) { end_ = std::move(end); }
  // What later grammars say of their recent calls.
  void CallsTake(Duration time) { calls_take_ = time; }

  void Hold() { held_ = true; }
  void Release() {
    held_ = false;
    for (auto& [spec, done] : std::exchange(waiting_, {})) Answer(spec, done);
  }

 private:
  void Answer(const std::string& spec, const std::function<void(CompiledGrammar)>& done) {
    if (spec == "bad") return done(InvalidArgument("the grammar is bad"));
    auto grammar = std::make_shared<FakeGrammar>(std::stoul(spec), &masks_, end_);
    grammar->CallsTake(calls_take_);
    done(std::move(grammar));
  }

  MaskGate masks_;
  bool held_ = false;
  std::optional<OutputEnd> end_;
  Duration calls_take_{};
  std::vector<uint64_t> clients_;
  std::vector<std::weak_ptr<const void>> wanted_;
  std::vector<std::pair<std::string, std::function<void(CompiledGrammar)>>> waiting_;
};

}  // namespace baton
