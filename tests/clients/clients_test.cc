// Runs the scripts of this folder, which use the official Python clients, against a router with a
// scripted worker and against a cluster of real processes with the real model.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/security/api_keys.h"
#include "tests/clients/run_script.h"
#include "tests/e2e/cluster.h"
#include "tests/fakes/test_api_key.h"
#include "tests/integration/router_service.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

// A router whose only worker answers by the prompt: it calls tools, thinks, and takes its time.
class ScriptedClients : public RouterServiceTest {
 protected:
  explicit ScriptedClients(const std::vector<std::string>& settings = {})
      : RouterServiceTest(With(settings)),
        worker_(WorkerOptions()),
        script_([this](const std::stop_token& stop) { Serve(stop); }) {}
  static std::vector<std::string> With(std::vector<std::string> settings) {
    for (const char* more :
         {"tool_call_format=hermes", "reasoning_format=think", "max_requests=1"}) {
      settings.emplace_back(more);
    }
    return settings;
  }
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
    // Cut in the arguments, which then end the answer (see Serve), or broken there.
    if (asks("Cut")) return "Look" + call.substr(0, call.find("rn"));
    if (asks("Failed")) {
      return "Look<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": "
             "2x}}"
             "</tool_call>";
    }
    if (asks("Broken")) return "<tool_call>{\"name\": weather}</tool_call>";
    return "Hello there.";
  }

  void Serve(const std::stop_token& stop) {
    for (size_t number = 0; !stop.stop_requested(); ++number) {
      const worker::v1::Dispatch dispatch = worker_.AwaitDispatch(number);
      std::string prompt;
      for (size_t at = 0; at < dispatch.tokens().size(); at += 4) prompt += dispatch.tokens()[at];
      const bool cut = prompt.find("Cut") != std::string::npos;
      std::string answer = AnswerTo(prompt);
      if (!cut) answer += '\0';  // the end token, which is not shown
      const bool slow = prompt.find("Slow") != std::string::npos;
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      for (size_t at = 0; at < answer.size(); at += 5) {
        const std::string part = answer.substr(at, 5);
        const bool last = at + part.size() == answer.size();
        worker_.Say(dispatch,
                    0,
                    static_cast<int32_t>(at),
                    part,
                    !last ? FinishReason::kNone
                    : cut ? FinishReason::kLength
                          : FinishReason::kStop);
      }
      worker_.Finish(dispatch);
    }
  }

  FakeWorker worker_;
  std::jthread script_;
};

TEST_F(ScriptedClients, CallToolsThinkTimeOutAndRetry) {
  RunScript("scripted_clients.py", {"http://" + router_->http()});
}

TEST_F(ScriptedClients, SpeakHttp2) {
  RunScript("http2_clients.py", {"http://" + router_->http()});
}

// Makes the certificate before the router starts.
class Certified {
 protected:
  Certified() {
    TestAuthority::Leaf leaf;
    leaf.dns_names = {"localhost"};
    leaf.ip_addresses = {"127.0.0.1"};
    files_ = authority_.Make(leaf);
  }

  TestAuthority authority_;
  CertificateFiles files_;
};

class EncryptedClients : public Certified, public ScriptedClients {
 protected:
  EncryptedClients()
      : ScriptedClients({"security.tls.certificate_file=" + files_.certificate,
                         "security.tls.key_file=" + files_.key}) {
    ConnectionLimits limits;
    limits.tls = std::make_shared<const RpcTls>(RpcTls{"", "", authority_.ca_file(), "localhost"});
    stub_ = v1::Generation::NewStub(MakeChannel(router_->address("grpc"), limits));
  }
};

TEST_F(EncryptedClients, SpeakHttp2) {
  RunScript("http2_clients.py", {"https://" + router_->http(), authority_.ca_file()});
}

class RealClients : public ClusterTest {};

TEST_F(RealClients, ChatAndStreamWithTheRealModel) {
  StartCluster(1, 1);
  RunScript("real_clients.py", {"http://" + http("router")});
}

TEST_F(RealClients, AskFromTheCommandLineWithLlm) {
  StartCluster(1, 1);
  RunScript("llm_command.py", {"http://" + http("router")});
}

TEST_F(RealClients, OfferToolsThroughAnotherTemplate) {
  const std::string file = std::string(BATON_TEST_DATA) + "/text/templates/qwen25_style.jinja";
  StartCluster(1, 1, {}, {"chat_template=" + file});
  RunScript("real_tools_clients.py", {"http://" + http("router")});
}

TEST_F(RealClients, GetStructuredOutputAndForcedCalls) {
  const std::string file = std::string(BATON_TEST_DATA) + "/text/templates/qwen25_style.jinja";
  StartCluster(1, 1, {}, {"chat_template=" + file});
  RunScript("real_structured_clients.py", {"http://" + http("router")});
}

// A model whose embeddings and scores are known.
class EmbeddingClients : public ClusterTest {
 protected:
  std::string Model() const override {
    return std::string(BATON_TEST_DATA) + "/tiny/qwen3_embedding";
  }
};

TEST_F(EmbeddingClients, GetTheVectorsOfTheReference) {
  StartCluster(1, 1, {"engine.kv_type=f32"}, {"rerank_format=qwen3"});
  RunScript("embedding_clients.py", {"http://" + http("router"), Model() + "/golden.json"});
}

// Clients need a key, and the router proves itself by a certificate.
class KeyedClients : public Certified, public RealClients {
 protected:
  KeyedClients() {
    ApiKey late = TestApiKey("late");
    late.expires_s = ParseExpiry("2020-01-31").value();
    ApiKey gone = TestApiKey("gone");
    gone.revoked = true;
    ApiKey rare = TestApiKey("rare");
    rare.limits.requests_per_second = 0.001;
    ApiKeys keys;
    for (const ApiKey& key : {TestApiKey("alice"), TestApiKey("carol"), late, gone, rare}) {
      EXPECT_TRUE(keys.Add(key).ok());
    }
    keys_file_ = folder_.Write("keys.json", keys.ToJson());
  }

  TemporaryFolder folder_;
  std::string keys_file_;
};

TEST_F(KeyedClients, ChatOverTlsAndAreRefusedByTheirOwnExceptions) {
  StartCluster(1,
               1,
               {},
               {"security.api_keys_file=" + keys_file_,
                "security.tls.certificate_file=" + files_.certificate,
                "security.tls.key_file=" + files_.key});
  RunScript("keyed_clients.py", {"https://" + http("router"), authority_.ca_file(), keys_file_});
}

}  // namespace
}  // namespace baton
