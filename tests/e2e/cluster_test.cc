#include "tests/e2e/cluster.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <future>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/raw_http.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kTokens = 24;

class EndToEndTest : public ClusterTest {};

TEST_F(EndToEndTest, AnswersThroughADisaggregatedCluster) {
  StartCluster(2, 2);
  const GenerateAccount first = Ask(PromptOf(5), kTokens);
  EXPECT_EQ(first.generated_tokens, kTokens);
  EXPECT_EQ(first.tokens.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(first.finish, "length");
  EXPECT_THAT(first.prefill_worker, StartsWith("prefill-"));
  EXPECT_THAT(first.decode_worker, StartsWith("decode-"));
  EXPECT_EQ(first.transport, "shm");
  EXPECT_GT(first.transfer_bytes, 0u);
  EXPECT_GT(first.ttft_ms, 0);
  EXPECT_EQ(first.attempts, 1);
  EXPECT_EQ(Ask(PromptOf(5), kTokens).tokens, first.tokens);
  ExpectNoLeaks({"prefill-0", "prefill-1", "decode-0", "decode-1"});
}

TEST_F(EndToEndTest, AResetEmptiesThePrefixCachesOfAllWorkers) {
  StartCluster(1, 1);
  const std::string prompt = PromptOf(5);
  const GenerateAccount first = Ask(prompt, kTokens);
  EXPECT_GT(Ask(prompt, kTokens).cached_tokens, 0);
  const HttpAnswer answer =
      HttpSend(http("router"),
               "POST /reset_prefix_cache HTTP/1.1\r\nHost: t\r\nContent-Length: "
               "0\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.status, 200) << answer.body;
  const GenerateAccount after = Ask(prompt, kTokens);
  EXPECT_EQ(after.cached_tokens, 0);
  EXPECT_EQ(after.tokens, first.tokens);
  ExpectNoLeaks({"prefill-0", "decode-0"});
}

// The prompts in turn as greedy and as seeded requests.
std::vector<GenerateCall> ComparedCalls(const std::vector<std::string>& prompts) {
  std::vector<GenerateCall> calls;
  for (const std::string& prompt : prompts) {
    GenerateCall& call = calls.emplace_back();
    call.text = prompt;
    call.max_tokens = kTokens;
    call.ignore_eos = true;
    const bool greedy = calls.size() % 2 == 1;
    call.temperature = greedy ? 0.0F : 1.0F;
    call.top_p = 0.95F;
    call.seed = 100 + calls.size();
  }
  return calls;
}

// No prompt begins like another one, so that each is handed off.
TEST_F(EndToEndTest, EqualsAUnifiedWorkerOverEveryTransport) {
  const auto calls = ComparedCalls(
      {PromptOf(0), PromptOf(1), PromptOf(2), PromptOf(3), LongPromptOf(4), LongPromptOf(5)});
  std::vector<std::vector<int32_t>> unified;
  StartCluster(0, 1, {"unified=true"});
  for (const GenerateCall& call : calls) unified.push_back(Ask(call).tokens);
  for (const char* transport : {"shm", "tcp"}) {
    StartCluster(1, 1, {fmt::format("transfer.require_transport={}", transport)});
    for (size_t i = 0; i < calls.size(); ++i) {
      const GenerateAccount answer = Ask(calls[i]);
      EXPECT_EQ(answer.tokens, unified[i]) << transport << " " << i;
      EXPECT_EQ(answer.transport, transport) << i;
      EXPECT_GE(answer.prompt_tokens, i < 4 ? 1 : kLongPromptTokens) << i;
    }
  }
}

// The workers' KV arenas hold 5,824 tokens. The model's context length is 8,192.
TEST_F(EndToEndTest, WithoutMaxTokensARequestIsServedByArenasSmallerThanTheContext) {
  StartCluster(1, 1);
  const ToolResult result =
      RunTool({"generate", "Say hi.", "--seed", "1", "--timeout-ms", "60000"});
  EXPECT_EQ(result.status, 0);
  EXPECT_FALSE(result.output.empty());
  EXPECT_THAT(LogOf("decode-0"), HasSubstr("the KV arena holds 5824 tokens (364 blocks of 16)"));
  EXPECT_EQ(Metric("router", "baton_router_handoff_refusals_total"), 0);
}

TEST_F(EndToEndTest, ProbesAndMetricsAreServedByEveryProcess) {
  StartCluster(1, 1);
  Ask(PromptOf(1), 4);
  for (const char* member : {"router", "prefill-0", "decode-0"}) {
    EXPECT_EQ(HttpGet(http(member), "/healthz").status, 200) << member;
    EXPECT_EQ(HttpGet(http(member), "/readyz").status, 200) << member;
  }
  for (const char* worker : {"prefill-0", "decode-0"}) {
    EXPECT_EQ(Metric(worker, "baton_kv_block_tokens"), 16) << worker;
    EXPECT_GT(Metric(worker, "baton_kv_blocks"), 0) << worker;
    EXPECT_EQ(Metric(worker, "baton_kv_leaked_blocks"), 0) << worker;
  }
  const std::string router = HttpGet(http("router"), "/metrics").body;
  for (const char* name : {"ttft", "tpot", "queue"}) EXPECT_THAT(router, HasSubstr(name));
}

// The value of `field` in /proc/<pid>/status, in bytes.
int64_t MemoryOf(const ChildProcess& process, const std::string& field) {
  std::ifstream status(fmt::format("/proc/{}/status", process.pid()));
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  ADD_FAILURE() << field << " is not in the status of process " << process.pid();
  return 0;
}

// Weights are read once and packed. Memory holds one copy of them.
TEST_F(EndToEndTest, AnIdleWorkerHoldsItsWeightsItsArenaAndLittleMore) {
  constexpr int64_t kLittle = 100'000'000;
  const auto weights = static_cast<int64_t>(std::filesystem::file_size(BATON_TEST_MODEL));
  StartCluster(1, 1);
  const auto expect_little = [&](const char* when) {
    for (const char* worker : {"prefill-0", "decode-0"}) {
      // The worker's own arena and its peers' arenas are shared memory.
      const int64_t own =
          MemoryOf(process(worker), "VmRSS") - MemoryOf(process(worker), "RssShmem");
      EXPECT_GT(own, 0);
      EXPECT_LE(own, weights + kLittle) << worker << " " << when;
    }
  };
  EXPECT_LE(MemoryOf(process("decode-0"), "RssShmem"), 128 << 20);
  expect_little("before it had work");
  Ask(PromptOf(7), kTokens);
  ExpectNoLeaks({"prefill-0", "decode-0"});
  expect_little("after it had work");
}

TEST_F(EndToEndTest, TheToolTalksToTheCluster) {
  StartCluster(1, 1);
  const auto json =
      RunTool({"generate", "Name a colour.", "--json", "--temperature", "0", "--max-tokens", "8"});
  ASSERT_EQ(json.status, 0);
  const auto parsed = nlohmann::json::parse(json.output);
  EXPECT_FALSE(parsed["text"].get<std::string>().empty());
  EXPECT_LE(parsed["generated_tokens"].get<int>(), 8);
  const auto plain =
      RunTool({"generate", "Name a colour.", "--temperature", "0", "--max-tokens", "8"});
  EXPECT_EQ(plain.output, parsed["text"].get<std::string>() + "\n");
  const auto status = RunTool({"status"});
  EXPECT_EQ(status.status, 0);
  EXPECT_THAT(status.output,
              AllOf(HasSubstr("prefill-0"), HasSubstr("decode-0"), HasSubstr("ready")));
  const auto status_json = nlohmann::json::parse(RunTool({"status", "--json"}).output);
  EXPECT_EQ(status_json["workers"].size(), 2u);
  for (const auto& worker : status_json["workers"]) {
    EXPECT_EQ(worker["version"], status_json["version"]) << "all programs are of one build";
  }
  EXPECT_NE(RunTool({"drain", "nobody"}).status, 0);
  EXPECT_NE(RunTool({"generate", "x", "--temperature", "-1"}).status, 0);
}

TEST_F(EndToEndTest, SigtermLetsRunningRequestsFinish) {
  StartCluster(1, 1);
  const auto undisturbed = Ask(PromptOf(3), 200).tokens;
  // The next wait must not see the request that has just ended.
  ASSERT_TRUE(WaitMetric("decode-0", "baton_worker_sequences_running", 0));
  auto answer = std::async(std::launch::async, [&] { return Ask(PromptOf(3), 200); });
  ASSERT_TRUE(WaitMetric("decode-0", "baton_worker_sequences_running", 1));
  EXPECT_TRUE(cluster().Drain(kAnswerLimit));
  EXPECT_EQ(answer.get().tokens, undisturbed);
}

TEST_F(EndToEndTest, ADrainedWorkersProcessEndsAndTheOthersServe) {
  StartCluster(2, 2);
  ASSERT_EQ(RunTool({"drain", "prefill-0"}).status, 0);
  EXPECT_EQ(process("prefill-0").WaitExit(kAnswerLimit), 0);
  EXPECT_TRUE(cluster().WaitJoined(3, kAnswerLimit).ok());
  ASSERT_EQ(RunTool({"drain", "decode-0", "--keep"}).status, 0);
  EXPECT_TRUE(cluster().WaitJoined(2, kAnswerLimit).ok());
  EXPECT_EQ(Ask(PromptOf(2), 4).prefill_worker, "prefill-1");
  EXPECT_EQ(process("decode-0").WaitExit(Duration(0)), std::nullopt);
  EXPECT_EQ(HttpGet(http("decode-0"), "/readyz").status, 503);
  process("decode-0").Signal(SIGTERM);
  EXPECT_EQ(process("decode-0").WaitExit(kAnswerLimit), 0);
}

TEST_F(EndToEndTest, AWorkerThatIsNotLetInSaysWhyAndIsListed) {
  StartCluster(0, 1);
  ASSERT_TRUE(
      cluster().AddWorker({"decode", "stranger", {"model.load_format=dummy"}}, kStartLimit).ok());
  ASSERT_TRUE(cluster().AddWorker({"decode", "other-secret", {"hash_secret=7"}}, kStartLimit).ok());
  ASSERT_TRUE(cluster()
                  .AddWorker({"decode", "lost", {"routers=[\"" + server() + "\"]"}}, kStartLimit)
                  .ok());
  const std::vector<std::pair<std::string, std::string>> reasons = {
      {"stranger", "other weights (compare model.path, model.load_format"},
      {"other-secret", "another hash_secret"},
      {"lost", "worker_listen is another port"}};
  for (const auto& [worker, reason] : reasons) {
    const Time deadline = SteadyClock().Now() + kAnswerLimit;
    HttpAnswer ready;
    do {
      ready = HttpGet(http(worker), "/readyz");
    } while (ready.body.find(reason) == std::string::npos && SteadyClock().Now() < deadline);
    EXPECT_EQ(ready.status, 503);
    EXPECT_THAT(ready.body, HasSubstr(reason));
    EXPECT_THAT(LogOf(worker), AllOf(HasSubstr("cannot join router"), HasSubstr(reason)));
  }
  const std::string status = RunTool({"status"}).output;
  EXPECT_THAT(status, AllOf(HasSubstr("REFUSED"), HasSubstr("stranger"), HasSubstr("127.0.0.1:")));
  EXPECT_THAT(status, AllOf(HasSubstr("other weights"), HasSubstr("another hash_secret")));
  EXPECT_EQ(Ask(PromptOf(1), 4).decode_worker, "decode-0");
}

TEST_F(EndToEndTest, ToolsSayWhenTheyAreAtTheWrongPort) {
  StartCluster(0, 1);
  EXPECT_EQ(RunToolAlone({"status", "--admin", server()}).status, 1);
  EXPECT_EQ(RunToolAlone({"drain", "decode-0", "--admin", server()}).status, 1);
  EXPECT_EQ(RunTool({"status"}).status, 0);
}

TEST_F(EndToEndTest, ARouterServesOnForAWhileAfterSigterm) {
  StartCluster(0, 1, {}, {"drain_grace_seconds=3600"});
  process("router").Signal(SIGTERM);
  const Time deadline = SteadyClock().Now() + kAnswerLimit;
  while (HttpGet(http("router"), "/readyz").status != 503) {
    ASSERT_LT(SteadyClock().Now(), deadline) << "still ready";
  }
  EXPECT_EQ(Ask(PromptOf(1), 4).generated_tokens, 4);
  process("router").Signal(SIGTERM);  // the second SIGTERM ends the process at once
  EXPECT_EQ(process("router").WaitExit(kAnswerLimit), 0);
}

TEST_F(EndToEndTest, AWorkerThatJoinsLaterServes) {
  StartCluster(0, 0);
  EXPECT_EQ(HttpGet(http("router"), "/readyz").status, 503);
  ASSERT_TRUE(cluster().AddWorker({"prefill", "prefill-9", {}}, kStartLimit).ok());
  ASSERT_TRUE(cluster().AddWorker({"decode", "decode-9", {}}, kStartLimit).ok());
  ASSERT_TRUE(cluster().WaitJoined(2, kStartLimit).ok());
  EXPECT_EQ(Ask(PromptOf(2), 4).decode_worker, "decode-9");
}

TEST_F(EndToEndTest, GarbageOnEveryPortChangesNothing) {
  StartCluster(1, 1);
  const auto before = Ask(PromptOf(4), 8).tokens;
  std::string garbage;
  for (int i = 0; i < 4096; ++i) garbage += static_cast<char>(i * 131 + 7);
  for (const auto& member : cluster().members()) {
    for (const auto& [name, address] : member.addresses) {
      for (const std::string& bytes : {garbage,
                                       std::string("GET / HTTP/1.1\r\nHost: t\r\n\r\n"),
                                       std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + garbage}) {
        RawConnection connection(address);
        if (connection.connected()) connection.Send(bytes);
      }
    }
  }
  EXPECT_EQ(Ask(PromptOf(4), 8).tokens, before);
  EXPECT_THAT(cluster().TakeExits(), ::testing::IsEmpty());
}

TEST_F(EndToEndTest, UpOnceShowsWhereTheTimeWent) {
  auto up = ChildProcess::Start({{BATON_BINARY_FOLDER "/baton",
                                  "up",
                                  "--once",
                                  "--model",
                                  BATON_TEST_MODEL,
                                  "--listen",
                                  "127.0.0.1:0",
                                  "--http",
                                  "127.0.0.1:0",
                                  "--prefill",
                                  "2",
                                  "--decode",
                                  "2",
                                  "--max-tokens",
                                  "16",
                                  "--threads",
                                  "1",
                                  "--worker-set",
                                  "engine.kv_memory_mib=64"},
                                 ""});
  ASSERT_TRUE(up.ok()) << up.status();
  const std::string output = (*up)->ReadStdout(kStartLimit);
  EXPECT_EQ((*up)->WaitExit(kAnswerLimit), 0) << output;
  for (const char* words : {"queue",
                            "prefill",
                            "KV moved",
                            "decode",
                            "TTFT",
                            "TPOT",
                            "over shm",
                            "prefill-1",
                            "decode-1"}) {
    EXPECT_THAT(output, HasSubstr(words));
  }
}

}  // namespace
}  // namespace baton
