#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/cluster.h"

namespace baton {

// 32 concurrent requests against a cluster in which something breaks meanwhile: greedy and sampled,
// short prompts and prompts of about 1,500 tokens. Every request must end with the tokens of an
// undisturbed unified worker, and no living worker may lose a block.
class FaultTest : public ClusterTest {
 protected:
  static constexpr int kRequests = 32;
  static constexpr int kTokens = 48;
  using Answers = std::vector<std::vector<int32_t>>;

  static GenerateCall CallOf(int number);

  // Tokens of all requests on one worker that both prefills and decodes, computed once.
  const Answers& Undisturbed();

  // Sends all requests at once to the first router, calls `disturb` on this thread while they run,
  // and returns their tokens. Requests that fail fail the test.
  Answers RunAll(const std::function<void()>& disturb);

  // Starts two prefill and two decode workers, runs all requests with `disturb`, and compares the
  // answers with Undisturbed().
  void CheckAnswers(const std::function<void()>& disturb);
  void ExpectEqual(const Answers& answers);

  // Waits until the worker computes one of the requests.
  void WaitBusy(const std::string& worker);
  // Signals the worker once it is busy.
  void SignalBusy(const std::string& worker, int signal);
};

}  // namespace baton
