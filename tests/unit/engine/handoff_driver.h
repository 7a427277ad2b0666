#pragma once

#include <map>
#include <random>

#include "tests/fakes/engine_harness.h"

namespace baton {

// Acts as both workers of hand-offs between two engines: submits to both, copies announced blocks
// into reserved blocks, activates, and releases the leases of both sides. With `random`, every
// action is delayed by a random time, as on a network.
class HandoffDriver {
 public:
  HandoffDriver(EngineHarness& prefill, EngineHarness& decode, std::mt19937_64* random = nullptr)
      : prefill_(prefill), decode_(decode), random_(random) {}

  // Starts the hand-off of `request`, whose kind is ignored.
  void Start(const Request& request);
  void Cancel(const Request& request);
  // Advances all hand-offs as far as possible. False when all have ended and are released.
  bool Pump();
  // Steps both engines and pumps until nothing is left to do. False after `most` rounds or a test
  // failure.
  bool RunUntilIdle(int most = 100000);

  // The tokens of a sample from the prefill side followed by those from the decode side.
  std::vector<TokenId> Tokens(const Request& request, int32_t sample);
  // Whether the request has ended on both sides.
  bool Ended(const Request& request);
  int64_t blocks_copied() const { return blocks_copied_; }

 private:
  struct Session {
    int32_t tokens = 0;  // of the prompt
    size_t copied = 0;   // blocks copied or skipped, in order
    bool activated = false;
    bool aborted = false;
    bool released_prefill = false;
    bool released_decode = false;
  };

  bool Now() { return random_ == nullptr || (*random_)() % 3 == 0; }
  void Advance(const RequestKey& key, Session& session);
  void CopyReady(const RequestKey& key, Session& session);
  void Release(const RequestKey& key, Session& session);

  EngineHarness& prefill_;
  EngineHarness& decode_;
  std::mt19937_64* random_;
  std::map<RequestKey, Session> sessions_;
  int64_t blocks_copied_ = 0;
};

}  // namespace baton
