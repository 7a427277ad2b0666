// Runs the scripts of this folder, which use the official Python clients, against a router with a
// scripted worker and against a cluster of real processes with the real model.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/e2e/cluster.h"
#include "tests/integration/router_service.h"

namespace baton {
namespace {

// Runs a script with the Python packages of the clients. The script prints what fails.
void RunScript(const std::string& script, const std::string& address) {
  ASSERT_TRUE(std::filesystem::exists(std::string(BATON_TEST_CLIENTS) + "/openai"))
      << "the Python packages of the clients are missing in '" << BATON_TEST_CLIENTS
      << "'; `./dev clients` installs them from PyPI";
  const std::string path = std::string(BATON_TEST_SCRIPTS) + "/" + script;
  const std::string packages = std::string("PYTHONPATH=") + BATON_TEST_CLIENTS;
  const std::vector<std::string> words = {
      "env", packages, "PYTHONDONTWRITEBYTECODE=1", "python3", path, "http://" + address};
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp("env", arguments.data());
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << script << " failed; its output is above";
}

// A router whose only worker answers by the prompt: it calls tools, thinks, and takes its time.
class ScriptedClients : public RouterServiceTest {
 protected:
  ScriptedClients()
      : RouterServiceTest({"tool_call_format=hermes", "reasoning_format=think", "max_requests=1"}),
        worker_(WorkerOptions()),
        script_([this](const std::stop_token& stop) { Serve(stop); }) {}
  ~ScriptedClients() override {
    script_.request_stop();
    // Wakes the script. The last client's request may not have ended yet.
    AwaitNoRequest();
    const grpc::Status status = StatusOf(Ask("end"));
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

 private:
  static std::string AnswerTo(const std::string& prompt) {
    const auto asks = [&](const char* text) { return prompt.find(text) != std::string::npos; };
    const std::string call =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
        "2}}\n</tool_call>";
    if (asks("<tool>")) return "It rains in Bern.";
    if (asks("Twice")) return call + "\n" + call;
    if (asks("Weather")) return "<think>I need the weather.</think>\nLet me look.\n" + call;
    if (asks("Broken")) return "<tool_call>{\"name\": weather}</tool_call>";
    return "Hello there.";
  }

  void Serve(const std::stop_token& stop) {
    for (size_t number = 0; !stop.stop_requested(); ++number) {
      const worker::v1::Dispatch dispatch = worker_.AwaitDispatch(number);
      std::string prompt;
      for (size_t at = 0; at < dispatch.tokens().size(); at += 4) prompt += dispatch.tokens()[at];
      const std::string answer = AnswerTo(prompt) + '\0';  // the end token, which is not shown
      const bool slow = prompt.find("Slow") != std::string::npos;
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      for (size_t at = 0; at < answer.size(); at += 5) {
        const std::string part = answer.substr(at, 5);
        const bool last = at + part.size() == answer.size();
        worker_.Say(dispatch,
                    0,
                    static_cast<int32_t>(at),
                    part,
                    last ? FinishReason::kStop : FinishReason::kNone);
      }
      worker_.Finish(dispatch);
    }
  }

  FakeWorker worker_;
  std::jthread script_;
};

TEST_F(ScriptedClients, CallToolsThinkTimeOutAndRetry) {
  RunScript("scripted_clients.py", router_->http());
}

class RealClients : public ClusterTest {};

TEST_F(RealClients, ChatAndStreamWithTheRealModel) {
  StartCluster(1, 1);
  RunScript("real_clients.py", http("router"));
}

TEST_F(RealClients, OfferToolsThroughAnotherTemplate) {
  const std::string file = std::string(BATON_TEST_DATA) + "/text/templates/qwen25_style.jinja";
  StartCluster(1, 1, {}, {"chat_template=" + file});
  RunScript("real_tools_clients.py", http("router"));
}

}  // namespace
}  // namespace baton
