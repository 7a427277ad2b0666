#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>

#include "common/base/clock.h"
#include "common/engine/listener.h"

namespace baton {

// Records when the tokens of a case of engine_bench arrive. The intruder's request has the id 0.
class TokenMeter final : public EngineListener {
 public:
  // The requests but the intruder: `streams` of them, whose tokens have the indices from `emitted`
  // to `end` - 1.
  TokenMeter(const Clock& clock, int32_t streams, int32_t emitted, int32_t end)
      : clock_(clock), streams_(streams), emitted_(emitted), end_(end) {}

  void OnTokens(std::span<const TokenOutput> tokens) override {
    const Time now = clock_.Now();
    for (const TokenOutput& output : tokens) {
      ++count_;
      if (output.id.value() == 0) {
        if (output.index == 0) intruder_first_token_ = now;
        continue;
      }
      Time& last = last_token_[output.id.value()];
      if (output.index == emitted_) {
        last_first_token_ = now;
        ++started_;
      } else {
        worst_gap_ = std::max(worst_gap_, now - last);
      }
      last = now;
      if (output.index + 1 == end_) one_ended_ = true;
    }
    // Both limits of the window are ends of steps.
    if (started_ < streams_ || one_ended_) return;
    if (full_tokens_ < 0) {
      full_tokens_ = 0;
      full_begin_ = now;
    } else {
      full_tokens_ += static_cast<int64_t>(tokens.size());
    }
    full_end_ = now;
  }
  void OnFinished(RequestId, Epoch, const RequestTimes&) override {}
  void OnFailed(const RequestFailure& failure) override { failure_ = failure.status; }
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation&) override {}
  void OnCacheEvent(const CacheEvent&) override {}

  Time last_first_token() const { return last_first_token_; }
  Time intruder_first_token() const { return intruder_first_token_; }
  Duration worst_gap() const { return worst_gap_; }
  void ForgetGap() { worst_gap_ = {}; }
  int64_t count() const { return count_; }
  const Status& failure() const { return failure_; }
  // Tokens per second while all streams decode: after the first token of the last one and before
  // the last token of the first one. 0: there was no such time.
  double full_rate() const {
    const double seconds = ToSeconds(full_end_ - full_begin_);
    return full_tokens_ <= 0 || seconds <= 0 ? 0 : static_cast<double>(full_tokens_) / seconds;
  }

 private:
  const Clock& clock_;
  const int32_t streams_;
  const int32_t emitted_;
  const int32_t end_;
  Time last_first_token_{};
  Time intruder_first_token_{};
  std::map<uint64_t, Time> last_token_;
  Duration worst_gap_{};
  int64_t count_ = 0;
  int32_t started_ = 0;  // streams that have a token
  bool one_ended_ = false;
  int64_t full_tokens_ = -1;  // in the time in which all streams decode; below 0: before it
  Time full_begin_{};
  Time full_end_{};
  Status failure_;
};

}  // namespace baton
