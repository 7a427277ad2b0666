// What clients send and receive, and what proves who they are, stands in no log.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/worker_plan.h"
#include "tests/e2e/cluster.h"
#include "tests/support/raw_http.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Words that stand nowhere else.
constexpr const char* kPrompt = "quixoticwalrus";
constexpr const char* kOutput = "plumkestrel";
constexpr const char* kOtherSecret = "zincpelican-the-secret-of-another-cluster";
constexpr const char* kUnknownKey = "baton-mauveoctopus-0123456789abcdef0123456789abcdef";

class LogSecrecyTest : public ClusterTest {
 protected:
  // Adds a key to the file of API keys, with more arguments of `baton key add`.
  std::string AddKey(const std::string& name, const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> command = {"key", "add", name, "--file", keys_file()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::string key = RunToolAlone(command).output;
    while (!key.empty() && key.back() == '\n') key.pop_back();
    EXPECT_GT(key.size(), 20u);
    secrets_["the key " + name] = key;
    return key;
  }
  // Posts `body` with a header that has the key; an empty key: without the header. The answer must
  // have `status`.
  void Post(const std::string& path, const std::string& key, const std::string& body, int status) {
    const std::string proof = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
    Send(PostRequest(path, body, proof + "Content-Type: application/json\r\n"), status);
  }
  void Send(const std::string& request, int status) {
    const HttpAnswer answer = HttpSend(http("router"), request, kAnswerLimit);
    EXPECT_EQ(answer.status, status) << request.substr(0, 1000) << "\n" << answer.body;
  }
  void Chat(const std::string& key,
            const Json& members,
            int status,
            const std::string& prompt = kPrompt) {
    Json body = {{"messages", {{{"role", "user"}, {"content", prompt}}}}, {"max_tokens", 8}};
    body.update(members);
    Post("/v1/chat/completions", key, body.dump(), status);
  }
  void SendGoodRequests(const std::string& key);
  void SendFailingRequests(const std::string& key);
  void SendRefusedRequests(const std::string& key);
  void KillTheDecodeWorkerOfARequest(const std::string& key);
  void ExpectNoSecretInLogs();

  std::string keys_file() const { return folder_.path() + "/keys.json"; }

  const TemporaryFolder folder_;
  std::map<std::string, std::string> secrets_ = {{"a prompt", kPrompt},
                                                 {"an output", kOutput},
                                                 {"a secret of another cluster", kOtherSecret},
                                                 {"an unknown key", kUnknownKey}};
};

void LogSecrecyTest::SendGoodRequests(const std::string& key) {
  Json output = {{"structured_outputs", {{"regex", kOutput}}}};
  Chat(key, Json::object(), 200);
  Chat(key, {{"stream", true}, {"max_tokens", 40}}, 200);
  Chat(key, output, 200);
  output["stream"] = true;
  Chat(key, output, 200);
  const std::string text = fmt::format(R"({{"prompt": "{}", "max_tokens": 4}})", kPrompt);
  Post("/v1/completions", key, text, 200);
  Post("/tokenize", key, fmt::format(R"({{"prompt": "{}"}})", kPrompt), 200);
  Post("/v1/responses",
       key,
       fmt::format(R"({{"input": "{}", "max_output_tokens": 16}})", kPrompt),
       200);
  const std::string messages = fmt::format(
      R"({{"messages": [{{"role": "user", "content": "{}"}}], "max_tokens": 4}})", kPrompt);
  Post("/v1/messages", key, messages, 200);
  const std::string key_file = folder_.Write("client.key", key + "\n");
  const ToolResult answered =
      RunTool({"generate", kPrompt, "--max-tokens", "8", "--key-file", key_file});
  EXPECT_EQ(answered.status, 0) << answered.output;
}

void LogSecrecyTest::SendFailingRequests(const std::string& key) {
  std::string too_long;
  for (int i = 0; i < 6000; ++i) too_long += std::string(kPrompt) + " ";
  Chat(key, Json::object(), 400, too_long);
  Chat(key, {{"temperature", kPrompt}}, 400);
  Chat(key, {{"model", kPrompt}}, 404);
  Chat(key, {{kPrompt, 1}, {"n", kPrompt}}, 400);
  Chat(key, {{"structured_outputs", {{"regex", std::string(kPrompt) + "("}}}}, 400);
  Chat(key, {{"structured_outputs", {{"grammar", std::string(kPrompt) + " ::="}}}}, 400);
  const Json schema = {{"type", "object"}, {kPrompt, true}, {"if", {{"const", kPrompt}}}};
  Chat(key, {{"structured_outputs", {{"json", schema}}}}, 400);
  Post("/v1/chat/completions", key, kPrompt, 400);
  Post("/v1/messages", key, fmt::format(R"({{"messages": "{}"}})", kPrompt), 400);
  Post("/v1/responses", key, fmt::format(R"({{"input": {{"{}": 1}}}})", kPrompt), 400);
  Post(std::string("/v1/") + kPrompt, key, "{}", 404);
  const Json too_slow = {{"timeout_ms", 1000}, {"max_tokens", 4000}, {"ignore_eos", true}};
  Chat(key, too_slow, 200);  // with what was generated in time
}

void LogSecrecyTest::SendRefusedRequests(const std::string& key) {
  Chat("", Json::object(), 401);
  Chat(kUnknownKey, Json::object(), 401);
  const std::string revoked = AddKey("revoked");
  RunToolAlone({"key", "revoke", "revoked", "--file", keys_file()});
  const std::string limited = AddKey("limited", {"--prompt-tokens", "2"});
  std::this_thread::sleep_for(std::chrono::seconds(2));  // routers notice keys within a second
  Chat(revoked, Json::object(), 401);
  Chat(limited, Json::object(), 400);
  // Keys in the wrong place.
  const std::string head = "GET /v1/models?api_key=" + key + " HTTP/1.1\r\nHost: baton\r\n";
  Send(head + "Connection: close\r\n\r\n", 401);
  Send(head + "Authorization " + key + "\r\n\r\n", 400);
  Send(key + " " + kPrompt + "\r\n\r\n", 400);
  const std::string key_file = folder_.Write("unknown.key", std::string(kUnknownKey) + "\n");
  EXPECT_EQ(RunTool({"generate", kPrompt, "--key-file", key_file}).status, 1);
  const std::string secret = folder_.Write("secret", std::string(kOtherSecret) + "\n");
  AddWorker("decode", "stranger", {"security.cluster_secret_file=" + secret});
  const Time limit = SteadyClock().Now() + kAnswerLimit;
  while (LogOf("stranger").find("another cluster secret") == std::string::npos &&
         SteadyClock().Now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void LogSecrecyTest::KillTheDecodeWorkerOfARequest(const std::string& key) {
  std::jthread request([&] { Chat(key, {{"max_tokens", 2000}, {"ignore_eos", true}}, 503); });
  EXPECT_TRUE(WaitMetric("decode-0", "baton_worker_sequences_running", 1));
  process("decode-0").Signal(SIGKILL);
}

void LogSecrecyTest::ExpectNoSecretInLogs() {
  int logs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(log_folder())) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ++logs;
    EXPECT_THAT(text, HasSubstr("ready {")) << entry.path();
    for (const auto& [what, secret] : secrets_) {
      const size_t at = text.find(secret);
      if (at == std::string::npos) continue;
      const size_t begin = text.rfind('\n', at) + 1;
      ADD_FAILURE() << entry.path().filename() << " has " << what << ": "
                    << text.substr(begin, text.find('\n', at) - begin);
    }
  }
  EXPECT_EQ(logs, 4);
}

TEST_F(LogSecrecyTest, NoPromptNoOutputAndNoKeyIsLogged) {
  const std::string key = AddKey("client");
  StartCluster(1,
               1,
               {},
               {QuotedOverride("security.api_keys_file", keys_file()),
                "security.open_pages=true",
                "worker_wait_seconds=2"});
  if (HasFatalFailure()) return;
  std::ifstream secret(cluster().secret_file());
  std::getline(secret, secrets_["the cluster's secret"]);
  ASSERT_GE(secrets_["the cluster's secret"].size(), 32u);
  SendGoodRequests(key);
  SendFailingRequests(key);
  SendRefusedRequests(key);
  KillTheDecodeWorkerOfARequest(key);
  // What was refused and lost is in the log, so the log was on.
  EXPECT_THAT(LogOf("router"), HasSubstr("security: http: refused"));
  EXPECT_THAT(LogOf("router"), HasSubstr("decode-0"));
  ExpectNoSecretInLogs();
}

}  // namespace
}  // namespace baton
