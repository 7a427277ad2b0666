#include <signal.h>

#include <thread>

#include "tests/fault/fault_cluster.h"

namespace baton {
namespace {

constexpr const char* kWorkers[] = {"prefill-0", "prefill-1", "decode-0", "decode-1"};

// Processes are killed, hang or are stopped while requests run.
class ProcessFaultTest : public FaultTest {
 protected:
  void CheckSignalled(const std::vector<std::string>& victims, int signal) {
    CheckAnswers([&] { SignalBusy(victims, signal); });
    ExpectDisturbed();
    std::vector<std::string> living;
    for (const char* worker : kWorkers) {
      if (std::find(victims.begin(), victims.end(), worker) == victims.end()) {
        living.emplace_back(worker);
      }
    }
    ExpectNoLeaks(living);
    if (signal != SIGSTOP) return;
    // A worker that was only stopped continues and joins again, and it has leaked no block.
    for (const std::string& victim : victims) process(victim).Signal(SIGCONT);
    EXPECT_TRUE(cluster().WaitJoined(4, kAnswerLimit).ok());
    ExpectNoLeaks(victims);
  }
};

// Simulates a hanging device: no step of this worker ends within the step limit.
TEST_F(ProcessFaultTest, WorkersWhoseStepsDoNotEndLeave) {
  StartCluster(1, 1, {"engine.step_limit_seconds=0.0001"});
  EXPECT_NE(
      RunTool({"generate", "Name a colour.", "--max-tokens", "8", "--timeout-ms", "20000"}).status,
      0);
  EXPECT_EQ(process("prefill-0").WaitExit(kAnswerLimit), 1);
  EXPECT_NE(LogOf("prefill-0").find("a step has not ended for"), std::string::npos);
}

TEST_F(ProcessFaultTest, KilledPrefillWorker) {
  CheckSignalled({"prefill-0"}, SIGKILL);
}
TEST_F(ProcessFaultTest, KilledDecodeWorker) {
  CheckSignalled({"decode-0"}, SIGKILL);
}
TEST_F(ProcessFaultTest, StoppedPrefillWorker) {
  CheckSignalled({"prefill-0"}, SIGSTOP);
}
TEST_F(ProcessFaultTest, StoppedDecodeWorker) {
  CheckSignalled({"decode-0"}, SIGSTOP);
}
TEST_F(ProcessFaultTest, APrefillAndADecodeWorkerKilledTogether) {
  CheckSignalled({"prefill-1", "decode-1"}, SIGKILL);
}
TEST_F(ProcessFaultTest, APrefillWorkerStoppedAndADecodeWorkerStopped) {
  CheckSignalled({"prefill-0", "decode-1"}, SIGSTOP);
}

// A node or a network segment fails, and Kubernetes starts the same workers again after that.
TEST_F(ProcessFaultTest, AllWorkersKilledAndStartedAgainAfterFiveSeconds) {
  CheckAnswers([&] {
    WaitBusy({"decode-0"});
    for (const char* worker : kWorkers) process(worker).Signal(SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds(5));
    for (const std::string worker : kWorkers) {
      AddWorker(worker.substr(0, worker.find('-')), worker + "-again", {"worker_id=" + worker});
    }
  });
  ExpectDisturbed();
  ExpectNoLeaks({"prefill-0-again", "prefill-1-again", "decode-0-again", "decode-1-again"});
}

TEST_F(ProcessFaultTest, RouterPausedForTenSeconds) {
  CheckAnswers([&] {
    WaitBusy({"decode-0"});
    process("router").Signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(10));
    process("router").Signal(SIGCONT);
  });
  ExpectDisturbed();
  ExpectNoLeaks({"prefill-0", "prefill-1", "decode-0", "decode-1"});
}

TEST_F(ProcessFaultTest, RequestsWaitForTheFirstWorker) {
  Undisturbed();
  StartCluster(0, 0);
  ExpectEqual(RunAll([&] {
    std::this_thread::sleep_for(std::chrono::seconds(12));
    AddWorker("decode", "decode-0");
    AddWorker("prefill", "prefill-0");
  }));
  ExpectNoLeaks({"prefill-0", "decode-0"});
}

// Two routers share the workers. A fault of the second router must not disturb clients of the first
// router, and the workers must free the blocks of the second router's requests.
class TwoRoutersTest : public FaultTest {
 protected:
  void StartTwoRouters() {
    Undisturbed();
    StartCluster(0, 0);
    StartSecondRouter();
    const std::string routers = fmt::format("routers=[\"{}\",\"{}\"]",
                                            cluster().router().addresses.at("workers"),
                                            second_router().router().addresses.at("workers"));
    for (const std::string worker : kWorkers) {
      AddWorker(worker.substr(0, worker.find('-')), worker, {routers});
    }
    ASSERT_TRUE(cluster().WaitJoined(4, kAnswerLimit).ok());
    ASSERT_TRUE(second_router().WaitJoined(4, kAnswerLimit).ok());
  }

  // Runs requests through both routers and sends the signal to the second router while they run.
  // Returns the statuses of the second router's requests.
  std::vector<Status> RunThroughBoth(int signal, Duration pause) {
    auto clients = ConnectedClients(second_router().server(), kRequests / 2);
    std::vector<std::jthread> threads;
    std::vector<Status> statuses(kRequests / 2);
    ExpectEqual(RunAll([&] {
      for (int i = 0; i < kRequests / 2; ++i) {
        threads.emplace_back([&, i] {
          GenerationClient& client = clients[static_cast<size_t>(i)];
          auto answer = client.Generate(CallOf(i), [](std::string_view) {});
          statuses[static_cast<size_t>(i)] = answer.status();
          if (answer.ok()) {
            EXPECT_EQ(answer->tokens, Undisturbed()[static_cast<size_t>(i)]) << "request " << i;
          }
        });
      }
      WaitBusy({"decode-0"});
      second_router().router().process->Signal(signal);
      std::this_thread::sleep_for(pause);
      if (signal == SIGSTOP) second_router().router().process->Signal(SIGCONT);
    }));
    threads.clear();
    ExpectNoLeaks({"prefill-0", "prefill-1", "decode-0", "decode-1"});
    return statuses;
  }
};

TEST_F(TwoRoutersTest, AKilledRouterTakesOnlyItsOwnRequestsAlong) {
  StartTwoRouters();
  for (const Status& status : RunThroughBoth(SIGKILL, Duration::zero())) {
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status;
  }
}

TEST_F(TwoRoutersTest, APausedRouterCompletesItsRequestsLater) {
  StartTwoRouters();
  for (const Status& status : RunThroughBoth(SIGSTOP, std::chrono::seconds(6))) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace baton
