#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/e2e/cluster.h"
#include "tests/e2e/mpirun_command.h"

// Workers of several ranks, as real processes with the real model (9 heads, 3 KV heads, 30 layers).
namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr RankCounts kOne;
constexpr RankCounts kThreeTensor = {.tensor_parallel = 3, .pipeline_parallel = 1};
constexpr RankCounts kTwoStages = {.tensor_parallel = 1, .pipeline_parallel = 2};
constexpr RankCounts kSixRanks = {.tensor_parallel = 3, .pipeline_parallel = 2};

class RankClusterTest : public ClusterTest {
 protected:
  // Requests of all kinds: greedy and sampled, short prompts and one of several chunks.
  static std::vector<GenerateCall> Calls() {
    std::vector<GenerateCall> calls;
    for (int i = 0; i < 6; ++i) {
      GenerateCall& call = calls.emplace_back();
      call.text = PromptOf(i);
      call.temperature = 0;
      if (i % 2 == 1) {
        call.temperature = 0.8F;
        call.seed = 100 + static_cast<uint64_t>(i);
      }
      call.max_tokens = 24;
      call.ignore_eos = true;
    }
    for (int i = 0; i < 100; ++i) {
      calls[4].text += fmt::format(" At mark {} runner {} passed the baton on.", i, i + 1);
    }
    return calls;
  }

  std::vector<std::vector<int32_t>> AnswersOf(const RankCounts& prefill, const RankCounts& decode) {
    SetRanks(prefill, decode);
    StartCluster(1, 1);
    std::vector<std::vector<int32_t>> answers;
    for (const GenerateCall& call : Calls()) answers.push_back(Ask(call).tokens);
    ExpectNoLeaks({"prefill-0", "decode-0"});
    EXPECT_TRUE(cluster().Drain(kAnswerLimit));
    return answers;
  }
};

TEST_F(RankClusterTest, AnswersDoNotDependOnTheShapesOfTheWorkers) {
  const auto expected = AnswersOf(kOne, kOne);
  EXPECT_EQ(AnswersOf(kThreeTensor, kOne), expected);
  EXPECT_EQ(AnswersOf(kOne, kThreeTensor), expected);
  EXPECT_EQ(AnswersOf(kTwoStages, kThreeTensor), expected);
  EXPECT_EQ(AnswersOf(kThreeTensor, kTwoStages), expected);
  EXPECT_EQ(AnswersOf(kTwoStages, kSixRanks), expected);
}

TEST_F(RankClusterTest, StatusShowsTheRanks) {
  SetRanks(kTwoStages, kThreeTensor);
  StartCluster(1, 1);
  const ToolResult status = RunTool({"status"});
  EXPECT_EQ(status.status, 0);
  EXPECT_THAT(status.output, HasSubstr("2 ranks, cpu"));
  EXPECT_THAT(status.output, HasSubstr("3 ranks, cpu"));
  (void)Ask(Calls().front());
  // The times come with the next heartbeat.
  const Time deadline = SteadyClock().Now() + kAnswerLimit;
  const std::regex last_rank("decode-0 +2 +[1-9][^ ]* ms +[^-]");
  std::string output;
  while (!std::regex_search(output, last_rank) && SteadyClock().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    output = RunTool({"status"}).output;
  }
  EXPECT_TRUE(std::regex_search(output, last_rank)) << output;
  EXPECT_THAT(output, HasSubstr("prefill-0  1 "));
}

TEST_F(RankClusterTest, MpirunStartsAGroup) {
  ASSERT_TRUE(std::filesystem::exists(kMpirun))
      << "openmpi-bin is missing: ./dev setup installs it";
  const auto expected = AnswersOf(kOne, kOne);
  SetRanks(kOne, kOne);
  StartCluster(1, 1);
  auto group = ChildProcess::Start(
      {MpirunCommand(3,
                     {"worker_id=group",
                      "engine.tensor_parallel=3",
                      "engine.threads=1",
                      "engine.kv_memory_mib=64",
                      "security.cluster_secret_file=" + cluster().secret_file(),
                      fmt::format("routers=[\"{}\"]", cluster().router().addresses.at("workers"))}),
       ""});
  ASSERT_TRUE(group.ok()) << group.status();
  const Status joined = cluster().WaitJoined(3, kStartLimit);
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(RunTool({"drain", "decode-0"}).status, 0);
  std::vector<std::vector<int32_t>> answers;
  for (const GenerateCall& call : Calls()) {
    const GenerateAccount account = Ask(call);
    EXPECT_EQ(account.decode_worker, "group");
    answers.push_back(account.tokens);
  }
  EXPECT_EQ(answers, expected);
  (*group)->Signal(SIGTERM);
  EXPECT_NE((*group)->WaitExit(kAnswerLimit), std::optional<int>());
}

TEST(RankStartTest, MpirunWithAnotherNumberOfRanksIsRefused) {
  const std::string log = ::testing::TempDir() + fmt::format("baton_mpirun_{}.log", ::getpid());
  auto group = ChildProcess::Start(
      {MpirunCommand(2, {"engine.tensor_parallel=3", "routers=[\"127.0.0.1:1\"]"}), log});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->WaitExit(kStartLimit), std::optional<int>(2));
  std::ifstream file(log);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("mpirun started 2 ranks"));
  std::filesystem::remove(log);
}

// Runs a decode worker with `settings` until it ends. Returns its exit status and stderr.
struct Refusal {
  int status = -1;
  std::string text;
};
Refusal RunWorker(const std::vector<std::string>& settings) {
  const std::string log = ::testing::TempDir() + fmt::format("baton_rank_{}.log", ::getpid());
  std::vector<std::string> command = {BATON_BINARY_FOLDER "/baton-decode",
                                      "--set",
                                      "model.path=" BATON_TEST_MODEL,
                                      "--set",
                                      "routers=[\"127.0.0.1:1\"]"};
  for (const std::string& setting : settings) {
    command.emplace_back("--set");
    command.push_back(setting);
  }
  auto process = ChildProcess::Start({command, log});
  EXPECT_TRUE(process.ok()) << process.status();
  Refusal refusal;
  refusal.status = (*process)->WaitExit(kStartLimit).value_or(-1);
  std::ifstream file(log);
  refusal.text.assign(std::istreambuf_iterator<char>(file), {});
  std::filesystem::remove(log);
  return refusal;
}

TEST(RankStartTest, WrongDegreesAndDevicesAreRefused) {
  const Refusal degree = RunWorker({"engine.tensor_parallel=2"});
  EXPECT_EQ(degree.status, 2);
  EXPECT_THAT(degree.text, HasSubstr("tensor_parallel"));
  const Refusal stages = RunWorker({"engine.pipeline_parallel=31"});
  EXPECT_EQ(stages.status, 2);
  const Refusal devices = RunWorker({"engine.tensor_parallel=3", "engine.devices=[cpu, cpu]"});
  EXPECT_EQ(devices.status, 2);
  EXPECT_THAT(devices.text, HasSubstr("engine.devices names 2 devices"));
  const Refusal twice =
      RunWorker({"engine.tensor_parallel=3", "engine.devices=[cpu, \"cuda:1\", \"cuda:1\"]"});
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.text, HasSubstr("engine.devices names cuda:1 twice"));
}

}  // namespace
}  // namespace baton
