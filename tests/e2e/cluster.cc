#include "tests/e2e/cluster.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "tests/support/raw_http.h"

namespace baton {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);

// gRPC 1.51 reads errno only after further calls, and malloc may set errno in a new thread. gRPC
// then gives up a connection that is under way, with an error that connect() does not have.
bool FailedToConnectByMistake(const Status& status) {
  return Message(status).find("No such file or directory") != std::string_view::npos;
}

// gRPC's pause after a failure to connect is 1 s, or up to 20 % more.
constexpr Duration kReconnect = std::chrono::milliseconds(1300);

// The result of `call`, which is made again when gRPC failed to connect by mistake.
template <class Call>
auto Connected(const Call& call) {
  auto result = call();
  if (!result.ok() && FailedToConnectByMistake(result.status())) {
    std::this_thread::sleep_for(kReconnect);
    result = call();
  }
  return result;
}

}  // namespace

ClusterTest::~ClusterTest() {
  second_router_.reset();
  cluster_.reset();
  if (log_folder_.empty()) return;
  if (HasFailure()) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(log_folder_)) {
      if (!entry.is_regular_file()) continue;
      std::cout << "---- " << entry.path().filename().string() << "\n"
                << std::ifstream(entry.path()).rdbuf() << std::endl;
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(log_folder_, ignored);
}

void ClusterTest::StartCluster(int prefill,
                               int decode,
                               const std::vector<std::string>& worker_set,
                               const std::vector<std::string>& router_set) {
  second_router_.reset();
  cluster_.reset();
  ASSERT_TRUE(std::filesystem::exists(Model()))
      << "the model \"" << Model() << "\" is absent: `./dev test` fetches it";
  if (log_folder_.empty()) {
    static int tests = 0;
    log_folder_ = ::testing::TempDir() + fmt::format("baton_e2e_{}_{}", ::getpid(), ++tests);
  }
  std::filesystem::create_directories(log_folder_);
  LocalClusterOptions options = Options();
  options.workers.prefill = prefill;
  options.workers.decode = decode;
  options.workers.prefill_ranks = prefill_ranks_;
  options.workers.decode_ranks = decode_ranks_;
  options.worker_set.insert(options.worker_set.begin(), worker_set.begin(), worker_set.end());
  options.router_set = router_set;
  auto started = LocalCluster::Start(options, kStartLimit);
  ASSERT_TRUE(started.ok()) << started.status();
  cluster_ = *std::move(started);
}

LocalClusterOptions ClusterTest::Options() const {
  LocalClusterOptions options;
  options.binary_folder = BATON_BINARY_FOLDER;
  options.log_folder = log_folder_;
  options.model = Model();
  options.operators = operators_;
  options.threads = 1;  // several workers share the machine
  options.worker_set = {"engine.kv_memory_mib=128"};
  return options;
}

void ClusterTest::AddWorker(const std::string& role,
                            const std::string& name,
                            const std::vector<std::string>& settings) {
  const Status added = cluster().AddWorker({role, name, settings}, kStartLimit);
  ASSERT_TRUE(added.ok()) << added;
}

void ClusterTest::StartSecondRouter() {
  LocalClusterOptions options = Options();
  options.log_folder += "/second";
  options.router_set = {"router_id=second"};
  options.secret_file = cluster().secret_file();
  std::filesystem::create_directories(options.log_folder);
  auto started = LocalCluster::Start(options, kStartLimit);
  ASSERT_TRUE(started.ok()) << started.status();
  second_router_ = *std::move(started);
}

std::string ClusterTest::LogOf(const std::string& member) {
  std::ifstream file(log_folder_ + "/" + member + ".log");
  return {std::istreambuf_iterator<char>(file), {}};
}

GenerateAccount ClusterTest::Ask(const std::string& prompt, int max_tokens) {
  GenerateCall call;
  call.text = prompt;
  call.temperature = 0;
  call.max_tokens = max_tokens;
  call.ignore_eos = true;
  return Ask(std::move(call));
}

GenerateAccount ClusterTest::Ask(GenerateCall call) {
  if (call.timeout_ms == 0) call.timeout_ms = static_cast<uint32_t>(ToMillis(kAnswerLimit));
  GenerationClient client(server());
  return Ask(client, call);
}

GenerateAccount ClusterTest::Ask(GenerationClient& client, const GenerateCall& call) {
  const auto account = Connected([&] { return client.Generate(call, [](std::string_view) {}); });
  EXPECT_TRUE(account.ok()) << account.status();
  return account.ok() ? *account : GenerateAccount();
}

std::deque<GenerationClient> ClusterTest::ConnectedClients(const std::string& server, int count) {
  std::deque<GenerationClient> clients;
  for (int i = 0; i < count; ++i) {
    GenerationClient& client = clients.emplace_back(server);
    const auto model = Connected([&] { return client.ModelName(); });
    EXPECT_TRUE(model.ok()) << model.status();
  }
  return clients;
}

ClusterTest::ToolResult ClusterTest::RunTool(std::vector<std::string> arguments) {
  if (arguments.at(0) == "status" || arguments.at(0) == "drain" || arguments.at(0) == "verify") {
    arguments.insert(arguments.end(), {"--admin", cluster().admin()});
  } else {
    arguments.insert(arguments.end(), {"--server", server()});
  }
  return RunToolAlone(std::move(arguments));
}

ClusterTest::ToolResult ClusterTest::RunToolAlone(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BATON_BINARY_FOLDER "/baton");
  auto tool = ChildProcess::Start({arguments, ""});
  EXPECT_TRUE(tool.ok()) << tool.status();
  if (!tool.ok()) return {};
  ToolResult result;
  result.output = (*tool)->ReadStdout(kAnswerLimit);
  result.status = (*tool)->WaitExit(kAnswerLimit).value_or(-1);
  return result;
}

double ClusterTest::Metric(const std::string& member, const std::string& name) {
  const std::string text = "\n" + HttpGet(http(member), "/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 2);
}

bool ClusterTest::WaitMetric(const std::string& member, const std::string& name, double value) {
  const Time deadline = SteadyClock().Now() + kAnswerLimit;
  while (Metric(member, name) != value) {
    if (SteadyClock().Now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

void ClusterTest::ExpectNoLeaks(const std::vector<std::string>& workers) {
  for (const auto& worker : workers) {
    EXPECT_TRUE(WaitMetric(worker, "baton_worker_sequences_running", 0)) << worker;
    EXPECT_TRUE(WaitMetric(worker, "baton_worker_sequences_waiting", 0)) << worker;
    EXPECT_TRUE(WaitMetric(worker, "baton_kv_cache_utilization", 0)) << worker;
    EXPECT_EQ(Metric(worker, "baton_kv_leaked_blocks"), 0) << worker;
  }
}

std::string ClusterTest::PromptOf(int number) {
  std::string prompt = fmt::format("Story number {} of the relay team begins:", number);
  for (int i = 0; i < number % 8; ++i) {
    prompt += fmt::format(" Runner {} waited at mark {} for the baton.", i + 1, number * 10 + i);
  }
  return prompt;
}

std::string ClusterTest::LongPromptOf(int number) {
  std::string prompt = PromptOf(number);
  for (int i = 0; i < 100; ++i) {
    prompt += fmt::format(" At mark {} runner {} passed the baton on.", i + number, i);
  }
  return prompt;
}

}  // namespace baton
