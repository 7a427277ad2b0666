#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/cluster.h"

namespace baton {

// Sends 32 concurrent requests to a cluster in which a fault happens while they run. The requests
// are greedy or sampled, with short prompts or prompts of about 1,500 tokens. Every request must
// end with the tokens of an undisturbed unified worker, and no living worker may leak a block.
class FaultTest : public ClusterTest {
 protected:
  static constexpr int kRequests = 32;
  static constexpr int kTokens = 48;
  using Answers = std::vector<std::vector<int32_t>>;

  static GenerateCall CallOf(int number);

  // The tokens of all requests on one unified worker. They are computed once.
  const Answers& Undisturbed();

  // Sends all requests at once to the first router, calls `disturb` on this thread while they run,
  // and returns their tokens. The test fails when a request fails.
  Answers RunAll(const std::function<void()>& disturb);

  // Starts two prefill and two decode workers, runs all requests with `disturb`, and compares the
  // answers with Undisturbed().
  void CheckAnswers(const std::function<void()>& disturb);
  void ExpectEqual(const Answers& answers);

  // Waits until the worker computes at least one sequence.
  void WaitBusy(const std::string& worker);
  // Waits until the worker is busy, then sends it the signal.
  void SignalBusy(const std::string& worker, int signal);
};

}  // namespace baton
