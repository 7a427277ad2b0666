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
  // How many masks were computed or are held.
  int64_t passed() {
    std::lock_guard lock(mutex_);
    return passed_;
  }
  // Waits while masks are held, but not for ever, so that a test which waits for them fails.
  void Pass() {
    std::unique_lock lock(mutex_);
    ++passed_;
    released_.wait_for(lock, std::chrono::seconds(5), [&] { return !held_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  int64_t passed_ = 0;
};

// From `length` tokens on nothing may follow, because of `failure`; when it is OK, because the
// grammar has a dead end.
struct OutputEnd {
  size_t length = 0;
  Status failure;
};

// After an output whose token ids have the sum s, the tokens t with (t + s) % 5 == 0 may follow,
// and from `least` tokens on a stop token. A mask of a wrong state therefore shows in the tokens.
// In the kind for a model of three tokens, those with (t + s) % 3 != 0 may follow, and where s is a
// multiple of 4, the first one that may follow counts as forced.
class FakeGrammar final : public Grammar {
 public:
  enum class Kind { kOneOfFive, kTwoOfThree };

  explicit FakeGrammar(size_t least,
                       MaskGate* gate = nullptr,
                       std::optional<OutputEnd> end = std::nullopt,
                       Kind kind = Kind::kOneOfFive)
      : least_(least), gate_(gate), end_(std::move(end)), kind_(kind) {}

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
          kind_(grammar.kind_),
          stops_(stop_tokens.begin(), stop_tokens.end()) {}

    bool Accept(TokenId token) override {
      if (lost_ || !Allows(token)) return false;
      Take(token);
      return true;
    }
    void GoBack(size_t count) override {
      lost_ = lost_ || !failure().ok();  // as the contract says
      Undo(count);
    }
    size_t CountAllowed(std::span<const TokenId> tokens) override {
      size_t allowed = 0;
      for (; allowed < tokens.size(); ++allowed) {
        if (std::ranges::count(stops_, tokens[allowed]) > 0 || !Allows(tokens[allowed])) break;
        Take(tokens[allowed]);
      }
      Undo(allowed);
      return allowed;
    }
    std::vector<TokenId> Forced(std::span<const TokenId> tokens, size_t most) override {
      const size_t before = tokens_.size();
      if (CountAllowed(tokens) < tokens.size()) return {};
      for (const TokenId token : tokens) Take(token);
      std::vector<TokenId> forced;
      while (kind_ == Kind::kTwoOfThree && sum_ % 4 == 0 && forced.size() < most) {
        TokenId token = 0;
        while (!Allows(token) || std::ranges::count(stops_, token) > 0) ++token;
        forced.push_back(token);
        Take(token);
      }
      Undo(tokens_.size() - before);
      return forced;
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
    bool HasEnded() const { return end_.has_value() && tokens_.size() >= end_->length; }
    bool Allows(TokenId token) const {
      if (std::ranges::count(stops_, token) > 0) return tokens_.size() >= least_;
      return kind_ == Kind::kOneOfFive ? (token + sum_) % 5 == 0 : (token + sum_) % 3 != 0;
    }
    void Undo(size_t count) {
      for (; count > 0; --count) {
        sum_ -= tokens_.back();
        tokens_.pop_back();
      }
    }
    void Take(TokenId token) {
      sum_ += token;
      tokens_.push_back(token);
    }

    const size_t least_;
    MaskGate* const gate_;
    const std::optional<OutputEnd> end_;
    const Kind kind_;
    const std::vector<TokenId> stops_;
    int64_t sum_ = 0;
    std::vector<TokenId> tokens_;
    bool lost_ = false;
  };

  const size_t least_;
  MaskGate* const gate_;
  const std::optional<OutputEnd> end_;
  const Kind kind_;
  Duration calls_take_{};
};

// Compiles the spec "N" to FakeGrammar(N), "N of 3" to that for three tokens, and refuses "bad".
// While it holds, nothing is compiled.
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
    const auto kind =
        spec.ends_with("of 3") ? FakeGrammar::Kind::kTwoOfThree : FakeGrammar::Kind::kOneOfFive;
    auto grammar = std::make_shared<FakeGrammar>(std::stoul(spec), &masks_, end_, kind);
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
