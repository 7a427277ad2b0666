#pragma once

#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/cluster_client.h"
#include "cli/generation_client.h"
#include "cli/local_cluster.h"

namespace baton {

constexpr auto kStartLimit = std::chrono::seconds(120);
constexpr auto kAnswerLimit = std::chrono::seconds(120);

// A cluster of real processes on free ports for one test, with the real model. When the test fails,
// the logs of the processes are printed. Every wait has a time limit.
class ClusterTest : public ::testing::Test {
 protected:
  ~ClusterTest() override;

  // Starts a router with the settings `router_set`, and the given numbers of prefill and decode
  // workers with the settings `worker_set`. Ends an earlier cluster first. A failure fails the
  // test.
  void StartCluster(int prefill,
                    int decode,
                    const std::vector<std::string>& worker_set = {},
                    const std::vector<std::string>& router_set = {});
  // The ranks of each worker of the clusters started from now on.
  void SetRanks(const RankCounts& prefill, const RankCounts& decode) {
    prefill_ranks_ = prefill;
    decode_ranks_ = decode;
  }
  // How the clusters started from now on are asked for their state, on the router's port "admin".
  void SetOperators(const EndpointFlags& flags) { operators_ = flags; }
  // Starts another worker of the cluster (`role` is "prefill" or "decode") with `settings`, and
  // waits until its ports are open.
  void AddWorker(const std::string& role,
                 const std::string& name,
                 const std::vector<std::string>& settings = {});
  // Starts a router in addition to the cluster's own. It ends with the test or with the next
  // StartCluster.
  void StartSecondRouter();
  LocalCluster& second_router() {
    if (!second_router_) throw std::logic_error("no second router runs");
    return *second_router_;
  }
  // Throws when no cluster runs. The exception ends a test whose StartCluster failed.
  LocalCluster& cluster() {
    if (!cluster_) throw std::logic_error("no cluster runs");
    return *cluster_;
  }
  ChildProcess& process(const std::string& member) { return *cluster().Find(member)->process; }
  const std::string& http(const std::string& member) {
    return cluster().Find(member)->addresses.at("http");
  }
  // Where the members' logs are, as NAME.log.
  const std::string& log_folder() const { return log_folder_; }
  // The log of a member so far.
  std::string LogOf(const std::string& member);
  const std::string& server() { return cluster().server(); }

  // Sends one greedy request. The test fails when the request fails.
  GenerateAccount Ask(const std::string& prompt, int max_tokens);
  // Sends the request `call`, whose default time-out is kAnswerLimit. The test fails when the
  // request fails.
  GenerateAccount Ask(GenerateCall call);
  // Sends the request through `client`. The test fails when the request fails.
  static GenerateAccount Ask(GenerationClient& client, const GenerateCall& call);
  // Clients that have connected to the router at `server`. The test fails when no router answers.
  static std::deque<GenerationClient> ConnectedClients(const std::string& server, int count);
  // Runs the tool `baton` with `arguments` and "--server …", or "--admin …" for `status`, `drain`
  // and `verify`. Returns its exit status and stdout.
  struct ToolResult {
    int status = -1;
    std::string output;
  };
  ToolResult RunTool(std::vector<std::string> arguments);
  // Like RunTool, but adds no argument.
  static ToolResult RunToolAlone(std::vector<std::string> arguments);

  // The value of an unlabelled metric in a member's /metrics; -1 when the metric is absent.
  double Metric(const std::string& member, const std::string& name);
  // Waits until the member's metric `name` has `value`. Returns false after kAnswerLimit.
  bool WaitMetric(const std::string& member, const std::string& name, double value);
  // Checks that every worker in `workers` counts no leaked block and that all of its blocks are
  // free or cached again.
  void ExpectNoLeaks(const std::vector<std::string>& workers);

  // The prompt of a request number. Prompts differ in length, so that requests end at different
  // times.
  static std::string PromptOf(int number);
  // A prompt of kLongPromptTokens or more tokens, which is prefilled in several chunks.
  static std::string LongPromptOf(int number);
  static constexpr int kLongPromptTokens = 1400;

  // The path of the model that clusters serve.
  virtual std::string Model() const { return BATON_TEST_MODEL; }

 private:
  LocalClusterOptions Options() const;

  RankCounts prefill_ranks_;
  RankCounts decode_ranks_;
  EndpointFlags operators_;
  std::string log_folder_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<LocalCluster> second_router_;
};

}  // namespace baton
