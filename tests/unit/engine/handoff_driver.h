#pragma once

#include <map>
#include <random>

#include "tests/fakes/engine_harness.h"

namespace baton {

// Plays both workers of hand-offs between two engines: submits to both, copies announced blocks
// into reserved ones, activates, and releases the leases of both sides. With `random`, every single
// act happens at a random later time, as on a network.
class HandoffDriver {
 public:
  HandoffDriver(EngineHarness& prefill, EngineHarness& decode, std::mt19937_64* random = nullptr)
      : prefill_(prefill), decode_(decode), random_(random) {}

  // `request` as a kServe request; its kind is set here.
  void Start(const Request& request);
  void Cancel(const Request& request);
  // Does what can be done now; false when all hand-offs are through and released.
  bool Pump();
  // Steps both engines and pumps until nothing is left to do.
  bool RunUntilIdle(int most = 100000);

  // Tokens of a sample from both sides together.
  std::vector<TokenId> Tokens(const Request& request, int32_t sample);
  // Whether both sides are through with the request.
  bool Ended(const Request& request);
  int64_t blocks_copied() const { return blocks_copied_; }

 private:
  struct Session {
    size_t copied = 0;  // blocks dealt with, in order
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
