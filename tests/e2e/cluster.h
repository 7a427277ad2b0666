#pragma once

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

// A cluster of real processes on free ports for one test, with the real model. Its logs are printed
// when the test fails. Everything waits within bounds.
class ClusterTest : public ::testing::Test {
 protected:
  ~ClusterTest() override;

  // Starts a router, with `router_set` as --set, and so many workers, each with `worker_set`; the
  // test fails when that does not work. A cluster started before ends.
  void StartCluster(int prefill,
                    int decode,
                    const std::vector<std::string>& worker_set = {},
                    const std::vector<std::string>& router_set = {});
  // Starts another worker of the cluster ("prefill" or "decode") with `settings` as --set, and
  // waits until its ports are open.
  void AddWorker(const std::string& role,
                 const std::string& name,
                 const std::vector<std::string>& settings = {});
  // Starts a router beside the cluster's own. Ends with the test or the next StartCluster.
  void StartSecondRouter();
  LocalCluster& second_router() {
    if (!second_router_) throw std::logic_error("no second router runs");
    return *second_router_;
  }
  // Throws when none was started, which ends a test whose start failed.
  LocalCluster& cluster() {
    if (!cluster_) throw std::logic_error("no cluster runs");
    return *cluster_;
  }
  ChildProcess& process(const std::string& member) { return *cluster().Find(member)->process; }
  const std::string& http(const std::string& member) {
    return cluster().Find(member)->addresses.at("http");
  }
  // What a member has logged so far.
  std::string LogOf(const std::string& member);
  const std::string& server() { return cluster().server(); }

  // One greedy request; its answer must come.
  GenerateAccount Ask(const std::string& prompt, int max_tokens);
  // One request as `call` states it, with kAnswerLimit as its time-out unless it names one; its
  // answer must come.
  GenerateAccount Ask(GenerateCall call);
  // Runs the tool `baton` with `arguments` and "--server …", or "--admin …" for `status` and
  // `drain`; exit status and stdout.
  struct ToolResult {
    int status = -1;
    std::string output;
  };
  ToolResult RunTool(std::vector<std::string> arguments);
  // As RunTool, with nothing added.
  static ToolResult RunToolAlone(std::vector<std::string> arguments);

  // The value of an unlabelled metric of a member's /metrics; -1 when it is not there.
  double Metric(const std::string& member, const std::string& name);
  // Waits until `name` has `value` at the member; false after kAnswerLimit.
  bool WaitMetric(const std::string& member, const std::string& name, double value);
  // Every living worker counts no leaked block, and every block is free or cached again.
  void ExpectNoLeaks(const std::vector<std::string>& workers);

  // Different prompts of different length, so that requests end at different times.
  static std::string PromptOf(int number);

 private:
  LocalClusterOptions Options() const;

  std::string log_folder_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<LocalCluster> second_router_;
};

}  // namespace baton
