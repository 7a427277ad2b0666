#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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

// After an output whose token ids have the sum s, the tokens t with (t + s) % 5 == 0 may follow,
// and from `least` tokens on a stop token. A mask of a wrong state therefore shows in the tokens.
class FakeGrammar final : public Grammar {
 public:
  explicit FakeGrammar(size_t least, MaskGate* gate = nullptr) : least_(least), gate_(gate) {}

  std::unique_ptr<GrammarMatcher> NewMatcher(std::span<const TokenId> stop_tokens) const override {
    return std::make_unique<Matcher>(least_, gate_, stop_tokens);
  }
  size_t bytes() const override { return sizeof(*this); }
  Duration recent_call() const override { return calls_take_; }

  // What recent_call says.
  void CallsTake(Duration time) { calls_take_ = time; }

 private:
  class Matcher final : public GrammarMatcher {
   public:
    Matcher(size_t least, MaskGate* gate, std::span<const TokenId> stop_tokens)
        : least_(least), gate_(gate), stops_(stop_tokens.begin(), stop_tokens.end()) {}

    bool Accept(TokenId token) override {
      if (!Allows(token)) return false;
      sum_ += token;
      ++length_;
      return true;
    }
    void FillMask(std::span<uint32_t> mask) override {
      if (gate_ != nullptr) gate_->Pass();
      std::ranges::fill(mask, 0);
      for (size_t token = 0; token < mask.size() * 32; ++token) {
        const auto allowed = static_cast<uint32_t>(Allows(static_cast<TokenId>(token)));
        mask[token / 32] |= allowed << token % 32;
      }
    }

   private:
    bool Allows(TokenId token) const {
      const bool stop = std::ranges::count(stops_, token) > 0;
      return stop ? length_ >= least_ : (token + sum_) % 5 == 0;
    }

    const size_t least_;
    MaskGate* const gate_;
    const std::vector<TokenId> stops_;
    int64_t sum_ = 0;
    size_t length_ = 0;
  };

  const size_t least_;
  MaskGate* const gate_;
  Duration calls_take_{};
};

// Compiles the spec "N" to FakeGrammar(N), and refuses "bad". While it holds, nothing is compiled.
class FakeGrammarCompiler final : public GrammarCompiler {
 public:
  void Compile(const std::string& spec,
               uint64_t client,
               std::function<void(CompiledGrammar)> done) override {
    clients_.push_back(client);
    if (held_) {
      waiting_.emplace_back(spec, std::move(done));
      return;
    }
    if (spec == "bad") return done(InvalidArgument("the grammar is bad"));
    done(std::make_shared<const FakeGrammar>(std::stoul(spec), &masks_));
  }

  // Of all grammars of this compiler.
  MaskGate& masks() { return masks_; }
  // For whom each grammar was compiled.
  const std::vector<uint64_t>& clients() const { return clients_; }

  void Hold() { held_ = true; }
  void Release() {
    held_ = false;
    for (auto& [spec, done] : std::exchange(waiting_, {})) Compile(spec, 0, std::move(done));
  }

 private:
  MaskGate masks_;
  bool held_ = false;
  std::vector<uint64_t> clients_;
  std::vector<std::pair<std::string, std::function<void(CompiledGrammar)>>> waiting_;
};

}  // namespace baton
