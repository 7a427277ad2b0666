#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/cluster.h"

namespace baton {

// Sends concurrent requests to a cluster in which a fault happens while they run. The requests
// are greedy or sampled, with short prompts or prompts of 1,400 tokens and more; every third one is
// constrained. Every request must end with the tokens of an undisturbed unified worker, and no
// living worker may leak a block.
class FaultTest : public ClusterTest {
 protected:
  static constexpr int kRequests = 32;
  static constexpr int kTokens = 48;
  using Answers = std::vector<std::vector<int32_t>>;

  static GenerateCall CallOf(int number);

  // The tokens of all requests on one unified worker. They are computed once.
  const Answers& Undisturbed();

  // How many requests run at the same time.
  virtual int requests() const { return kRequests; }

  // Sends all requests at once to the first router, calls `disturb` on this thread while they run,
  // and returns their tokens. The test fails when a request fails. Each request has a connection of
  // its own, made before: a client does not wait as long for a paused router to answer a new
  // connection as for the answer of a request.
  Answers RunAll(const std::function<void()>& disturb);

  // Starts two prefill and two decode workers, runs all requests with `disturb`, and compares the
  // answers with Undisturbed().
  void CheckAnswers(const std::function<void()>& disturb);
  void ExpectEqual(const Answers& answers);

  // Waits until each of the workers computes at least one sequence at the same time.
  void WaitBusy(const std::vector<std::string>& workers);
  // Waits until all of the workers are busy, then sends the signal to all of them.
  void SignalBusy(const std::vector<std::string>& workers, int signal);
  // Checks that the fault made the router dispatch a request again or redirect a hand-off.
  void ExpectDisturbed();
};

}  // namespace baton
