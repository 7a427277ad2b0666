#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/handoff/handoff_simulator.h"

// The machines of both roles, PrefillHandoffs and DecodeHandoffs, with random orders of dispatches,
// offers, reservations, commits and cancels, and with random faults. In every world each request
// ends, each lease ends once and not while a peer may use its blocks, and a request is activated
// only with its own KV and first tokens.
namespace baton {
namespace {

constexpr size_t kRequests = HandoffSimulator::kRequests;

struct Outcome {
  size_t served = 0;
  size_t committed = 0;
  size_t redirects = 0;
};

// Runs a simulation for each seed from 1 to `seeds`. A violation fails the test and names the seed.
Outcome RunWorlds(const HandoffFaults& faults, uint64_t seeds) {
  Outcome outcome;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    HandoffSimulator world(seed, faults);
    world.Run();
    outcome.served += world.served();
    outcome.committed += world.committed();
    outcome.redirects += world.redirects();
    if (world.violation().empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << world.violation();
    return outcome;
  }
  return outcome;
}

TEST(HandoffSimulation, EveryRequestIsServedInAPerfectWorld) {
  const Outcome outcome = RunWorlds({}, 200);
  EXPECT_EQ(outcome.served, 200 * kRequests);
  EXPECT_EQ(outcome.committed, 200 * (kRequests - 1));  // one ends with its first token
  EXPECT_EQ(outcome.redirects, 0u);
}

TEST(HandoffSimulation, RefusedHandoffsAreRedirected) {
  HandoffFaults faults;
  faults.worker.no_room = 0.3;
  faults.worker.unreachable = 0.2;
  faults.worker.silent_dial = 0.01;
  faults.transfer.break_offer = 0.1;
  faults.no_redirect = 0.05;
  const Outcome outcome = RunWorlds(faults, 200);
  EXPECT_GT(outcome.redirects, 200u);
  EXPECT_GT(outcome.served, 200 * kRequests / 2);
  EXPECT_LT(outcome.served, 200 * kRequests);
}

TEST(HandoffSimulation, DispatchesThatNeverArrive) {
  HandoffFaults faults;
  faults.lose_dispatch = 0.5;
  const Outcome outcome = RunWorlds(faults, 200);
  EXPECT_GT(outcome.served, 200 * kRequests / 4);
  EXPECT_LT(outcome.served, 200 * kRequests);
}

TEST(HandoffSimulation, CancelsAtEveryPoint) {
  HandoffFaults faults;
  faults.cancel = 0.7;
  faults.lose_cancel = 0.5;
  faults.transfer.slow_close = 0.3;
  faults.worker.no_room = 0.2;
  const Outcome outcome = RunWorlds(faults, 1000);
  EXPECT_GT(outcome.committed, 0u);
  EXPECT_LT(outcome.committed, 1000 * kRequests);
}

TEST(HandoffSimulation, FailuresOfStepsAndTransfers) {
  HandoffFaults faults;
  faults.worker.failed_step = 0.1;
  faults.transfer.fail = 0.2;
  faults.transfer.lose_ack = 0.2;
  faults.transfer.slow_close = 0.3;
  const Outcome outcome = RunWorlds(faults, 200);
  EXPECT_GT(outcome.served, 0u);
  EXPECT_LT(outcome.served, 200 * kRequests);
}

TEST(HandoffSimulation, LossesAtEveryPoint) {
  HandoffFaults faults;
  faults.crash = 0.002;
  faults.break_streams = 0.005;
  faults.lose_router = 0.002;
  faults.leave = 0.0005;
  const Outcome outcome = RunWorlds(faults, 1000);
  EXPECT_GT(outcome.served, 0u);
  EXPECT_LT(outcome.served, 1000 * kRequests);
}

TEST(HandoffSimulation, EverythingAtOnce) {
  HandoffFaults faults;
  faults.transfer = {.break_offer = 0.05, .fail = 0.05, .lose_ack = 0.05, .slow_close = 0.2};
  faults.worker = {.unreachable = 0.05, .no_room = 0.1, .failed_step = 0.02};
  faults.lose_dispatch = 0.1;
  faults.cancel = 0.2;
  faults.lose_cancel = 0.3;
  faults.no_redirect = 0.1;
  faults.crash = 0.0005;
  faults.break_streams = 0.002;
  faults.lose_router = 0.0005;
  faults.leave = 0.0001;
  const Outcome outcome = RunWorlds(faults, 4000);
  EXPECT_GT(outcome.served, 0u);
}

TEST(HandoffSimulation, ARunIsAFunctionOfItsSeed) {
  HandoffFaults faults;
  faults.worker.no_room = 0.3;
  faults.cancel = 0.3;
  const Outcome first = RunWorlds(faults, 20);
  const Outcome second = RunWorlds(faults, 20);
  EXPECT_EQ(first.served, second.served);
  EXPECT_EQ(first.redirects, second.redirects);
}

}  // namespace
}  // namespace baton
