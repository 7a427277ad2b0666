#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/log/log.h"
#include "common/security/api_keys.h"
#include "common/security/cluster_proofs.h"
#include "proto/rpc_error.pb.h"
#include "tests/fakes/test_api_key.h"
#include "tests/integration/router_service.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/raw_http.h"
#include "tests/support/temporary_folder.h"

// Who may use a router's ports: keys of clients and operators, the secret of workers.
namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kSecret = "the-secret-of-this-test-cluster-1";
const std::string kOther = "the-secret-of-another-cluster-222";

// The files of a router's security settings.
class DoorFiles {
 protected:
  DoorFiles() {
    ApiKey limited = TestApiKey("limited");
    limited.limits.requests_in_flight = 1;
    limited.limits.body_bytes = 2000;
    limited.limits.prompt_tokens = 100;
    limited.limits.output_tokens = 50;
    ApiKey rare = TestApiKey("rare");
    rare.limits.requests_per_second = 0.1;
    clients_ = {TestApiKey("alice"), TestApiKey("bob"), limited, rare};
    WriteClients();
    ApiKeys operators;
    operators.Add(TestApiKey("root")).IgnoreError();
    folder_.Write("admin.json", operators.ToJson());
    folder_.Write("secret", kSecret + "\n");
  }

  void WriteClients() {
    ApiKeys keys;
    for (const ApiKey& key : clients_) keys.Add(key).IgnoreError();
    folder_.Write("keys.json", keys.ToJson());
  }
  std::vector<std::string> Settings() const {
    return {"security.api_keys_file=" + folder_.path() + "/keys.json",
            "security.admin_keys_file=" + folder_.path() + "/admin.json",
            "security.cluster_secret_file=" + folder_.path() + "/secret"};
  }

  TemporaryFolder folder_;
  std::vector<ApiKey> clients_;
};

class DoorTest : public DoorFiles, public RouterServiceTest {
 protected:
  DoorTest() : RouterServiceTest(Settings()) {}

  FakeWorker::Options MemberOptions(const std::string& secret = kSecret) {
    FakeWorker::Options options = WorkerOptions();
    options.proofs =
        std::make_shared<ClusterProofs>(ClusterSecret::Parse(secret).value(), refusals_);
    return options;
  }
  std::unique_ptr<Call> Begin(const std::string& key, const v1::GenerateRequest& request) {
    auto call = std::make_unique<Call>();
    call->context.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    if (!key.empty()) call->context.AddMetadata("authorization", "Bearer " + key);
    call->stream = stub_->Generate(&call->context, request);
    return call;
  }
  grpc::Status Ended(const std::string& key, const v1::GenerateRequest& request) {
    return Begin(key, request)->ReadToEnd();
  }
  HttpAnswer Http(const std::string& method,
                  const std::string& path,
                  const std::string& headers,
                  const std::string& body = "") {
    return HttpSend(router_->http(),
                    fmt::format("{} {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n{}Connection: "
                                "close\r\n\r\n{}",
                                method,
                                path,
                                body.size(),
                                headers,
                                body));
  }
  double Refused(const std::string& port) {
    return router_->Metric("baton_security_refused_total{port=\"" + port + "\"}");
  }

  MetricsRegistry metrics_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>(metrics_);
};

TEST_F(DoorTest, GrpcNeedsAKeyOfAClient) {
  FakeWorker worker(MemberOptions());
  for (const char* key : {"", "key-nobody", "key-root"}) {
    const grpc::Status refused = Ended(key, Ask("hi"));
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED) << key;
    if (*key == 0) continue;
    EXPECT_THAT(refused.error_message(), Not(HasSubstr(key)));
  }
  EXPECT_EQ(Refused("grpc"), 3);
  for (const char* method : {"Tokenize", "Detokenize", "ListModels"}) {
    const RawAnswer answer = RawCall(channel_, std::string("/baton.v1.Generation/") + method, "");
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
  }
  const auto call = Begin("key-alice", Ask("hi"));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "yes", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(call->text[0], "yes");
}

TEST_F(DoorTest, ARevokedKeyIsRefusedWithoutARestart) {
  ASSERT_NE(Ended("key-bob", v1::GenerateRequest()).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  clients_[1].revoked = true;
  WriteClients();
  Await(
      [&] {
        return Ended("key-bob", v1::GenerateRequest()).error_code() ==
               grpc::StatusCode::UNAUTHENTICATED;
      },
      "the revocation");
  EXPECT_NE(Ended("key-alice", v1::GenerateRequest()).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(DoorTest, HttpNeedsAKeyOfAClient) {
  for (const std::string& headers : {std::string(),
                                     std::string("Authorization: Bearer key-root\r\n"),
                                     std::string("x-api-key: no\r\n")}) {
    const HttpAnswer answer = Http("POST", "/v1/chat/completions", headers, "{}");
    EXPECT_EQ(answer.status, 401) << headers;
    EXPECT_THAT(answer.head, HasSubstr("WWW-Authenticate: Bearer"));
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], "invalid_api_key");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("API key"));
  }
  // Anthropic's clients look for the id under their own name, also in errors of the server itself.
  EXPECT_THAT(Http("POST", "/v1/messages", "x-request-id: mine\r\n", "{}").head,
              AllOf(HasSubstr(" 401 "), HasSubstr("\r\nrequest-id: mine\r\n")));
  EXPECT_EQ(Http("GET", "/nothing", "").status, 401);
  EXPECT_EQ(Http("GET", "/v1/models", "Authorization: Bearer key-alice\r\n").status, 200);
  EXPECT_EQ(Http("GET", "/v1/models", "x-api-key: key-alice\r\n").status, 200);
  EXPECT_EQ(Refused("http"), 5);
}

TEST_F(DoorTest, PagesNeedAnOperatorAndProbesNeedNobody) {
  for (const char* path : {"/", "/status.json", "/metrics"}) {
    const HttpAnswer stranger = Http("GET", path, "x-api-key: key-alice\r\n");
    EXPECT_EQ(stranger.status, 401) << path;
    EXPECT_THAT(stranger.head, HasSubstr("WWW-Authenticate: Basic"));
    // What the router of this process does not serve, its gate still lets the operator ask for.
    EXPECT_NE(Http("GET", path, "Authorization: Basic YTprZXktcm9vdA==\r\n").status, 401) << path;
  }
  for (const char* path : {"/healthz", "/readyz", "/health"}) {
    EXPECT_NE(Http("GET", path, "").status, 401) << path;
  }
}

TEST_F(DoorTest, AdminNeedsAKeyOfAnOperatorAndWritesAnAuditLog) {
  CapturedStderr log;
  const auto drain = [&](const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    admin::v1::DrainWorkerRequest request;
    request.set_worker_id("w7");
    admin::v1::DrainWorkerResponse response;
    return admin_->DrainWorker(&context, request, &response).error_code();
  };
  EXPECT_EQ(drain(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(drain("key-alice"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(drain("key-root"), grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  admin::v1::ClusterStatus status;
  EXPECT_EQ(admin_->GetStatus(&context, {}, &status).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Refused("admin"), 3);
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  EXPECT_THAT(log.Text(),
              AllOf(HasSubstr("audit: DrainWorker w7 by of-root/root from ipv4:127.0.0.1"),
                    Not(HasSubstr("key-root"))));
}

// The request of an operator runs on the workers that it names, and needs no key of a client.
TEST_F(DoorTest, OnlyAnOperatorNamesTheWorkersOfARequest) {
  const auto generate = [&](const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    admin::v1::GenerateOnRequest request;
    request.set_prompt("x");
    request.set_decode_worker("w7");
    request.set_max_tokens(1);
    admin::v1::GenerateOnResponse response;
    return admin_->GenerateOn(&context, request, &response).error_code();
  };
  EXPECT_EQ(generate(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(generate("key-alice"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(generate("key-root"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Refused("admin"), 2);
}

// Who may use one port has nothing to say on another one.
TEST_F(DoorTest, AMemberOrClientOnTheWrongPortIsRefused) {
  const auto call = [&](const char* port, const char* method) {
    return RawCall(MakeChannel(router_->address(port)), method, "", std::chrono::seconds(5)).status;
  };
  EXPECT_EQ(call("grpc", "/baton.worker.v1.WorkerLink/Open").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call("grpc", "/baton.admin.v1.Admin/GetStatus").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call("workers", "/baton.v1.Generation/ListModels").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call("workers", "/baton.admin.v1.Admin/GetStatus").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(call("admin", "/baton.v1.Generation/ListModels").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  for (const char* port : {"grpc", "admin"}) {
    FakeWorker::Options lost = MemberOptions();
    lost.router = router_->address(port);
    EXPECT_EQ(FakeWorker(lost).AwaitRefusal().code(), StatusCode::kUnimplemented) << port;
  }
  EXPECT_EQ(Http("GET", "/v1/models", "x-api-key: key-root\r\n").status, 401);
  EXPECT_EQ(Http("GET", "/status.json", "x-api-key: key-alice\r\n").status, 401);
  EXPECT_EQ(Http("GET", "/v1/models", "x-api-key: " + kSecret + "\r\n").status, 401);
}

TEST_F(DoorTest, OnlyAnOperatorResetsThePrefixCaches) {
  FakeWorker worker(MemberOptions());
  CapturedStderr log;
  for (const char* key : {"", "x-api-key: key-alice\r\n"}) {
    EXPECT_EQ(Http("POST", "/reset_prefix_cache", key).status, 401) << key;
  }
  EXPECT_EQ(worker.caches_cleared(), 0);
  const std::string root = "x-api-key: key-root\r\n";
  EXPECT_EQ(Http("GET", "/reset_prefix_cache", root).status, 405);
  EXPECT_EQ(Http("POST", "/reset_prefix_cache", root).status, 200);
  Await([&] { return worker.caches_cleared() == 1; }, "the command");
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  EXPECT_THAT(log.Text(), HasSubstr("audit: ResetPrefixCache by of-root/root"));
}

TEST_F(DoorTest, RefusedPeersAreInTheStatus) {
  EXPECT_EQ(Http("POST", "/v1/completions", "x-api-key: no\r\n").status, 401);
  EXPECT_EQ(Http("POST", "/v1/completions", "").status, 401);
  FakeWorker stranger(MemberOptions(kOther));
  EXPECT_EQ(stranger.AwaitRefusal().code(), StatusCode::kUnauthenticated);
  const Json peers =
      Json::parse(Http("GET", "/status.json", "x-api-key: key-root\r\n").body)["refused_peers"];
  ASSERT_EQ(peers.size(), 2u) << peers;
  EXPECT_EQ(peers[0]["port"], "ToRouter");
  EXPECT_EQ(peers[0]["address"], "127.0.0.1");
  EXPECT_THAT(peers[0]["reason"].get<std::string>(), HasSubstr("another cluster secret"));
  EXPECT_EQ(peers[1]["port"], "http");
  EXPECT_EQ(peers[1]["refusals"], "2");
}

TEST_F(DoorTest, AWorkerNeedsTheSecret) {
  FakeWorker stranger(MemberOptions(kOther));
  const Status refusal = stranger.AwaitRefusal();
  EXPECT_EQ(refusal.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Message(refusal)), HasSubstr("security.cluster_secret_file"));
  FakeWorker without(WorkerOptions());
  EXPECT_EQ(without.AwaitRefusal().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Refused("ToRouter"), 2);
}

TEST_F(DoorTest, TheSecretIsReplacedWithoutARestart) {
  FakeWorker before(MemberOptions());
  folder_.Write("secret", kOther);
  FakeWorker::Options after = MemberOptions(kOther);
  int tries = 0;
  const auto joins = [&] {
    after.id =
        fmt::format("after-{}", ++tries);  // the worker of the last try may not have left yet
    return FakeWorker(after).is_member();
  };
  Await(joins, "the new secret");
  FakeWorker::Options late = MemberOptions();
  late.id = "late";
  EXPECT_TRUE(FakeWorker(late).is_member()) << "the earlier secret still holds";
  EXPECT_TRUE(before.is_member());
}

TEST_F(DoorTest, TheCacheIsTheTenantsWhateverTheClientSays) {
  FakeWorker worker(MemberOptions());
  const auto salt_of = [&](const std::string& key, const std::string& own, size_t number) {
    v1::GenerateRequest request = Ask("hi");
    request.set_cache_salt(own);
    const auto call = Begin(key, request);
    const worker::v1::Dispatch dispatch = worker.AwaitDispatch(number);
    worker.Say(dispatch, 0, 0, "x", FinishReason::kStop);
    worker.Finish(dispatch);
    EXPECT_TRUE(call->ReadToEnd().ok());
    return dispatch.cache_salt();
  };
  const std::string alice = salt_of("key-alice", "", 0);
  EXPECT_EQ(salt_of("key-alice", "", 1), alice);
  EXPECT_NE(salt_of("key-bob", "", 2), alice);
  EXPECT_NE(salt_of("key-bob", alice, 3), alice);  // cannot be forged
  EXPECT_NE(salt_of("key-alice", "own", 4), alice);
}

// So that clients take turns at the queues of workers.
TEST_F(DoorTest, WorkersCanTellClientsApart) {
  FakeWorker worker(MemberOptions());
  const auto tag_of = [&](const std::string& key, size_t number) {
    const auto call = Begin(key, Ask("hi"));
    const worker::v1::Dispatch dispatch = worker.AwaitDispatch(number);
    worker.Say(dispatch, 0, 0, "x", FinishReason::kStop);
    worker.Finish(dispatch);
    EXPECT_TRUE(call->ReadToEnd().ok());
    return dispatch.client_tag();
  };
  const uint64_t alice = tag_of("key-alice", 0);
  EXPECT_NE(alice, 0u);
  EXPECT_EQ(tag_of("key-alice", 1), alice);
  EXPECT_NE(tag_of("key-bob", 2), alice);
}

// Such as too many grammars that wait to be compiled.
TEST_F(DoorTest, ALimitThatAClientReachesOnAllWorkersIsNamed) {
  FakeWorker worker(MemberOptions());
  const std::jthread refusals([&] {
    for (size_t attempt = 0; attempt < 4; ++attempt) {  // max_attempts
      const worker::v1::Dispatch dispatch = worker.AwaitDispatch(attempt);
      worker::v1::ToRouter message;
      worker::v1::Failed& failed = *message.add_failed();
      failed.set_request_id(dispatch.request_id());
      failed.set_epoch(dispatch.epoch());
      failed.set_code(static_cast<int>(StatusCode::kResourceExhausted));
      failed.set_message("32 grammars of this client wait (max_waiting_grammars)");
      failed.set_retryable(true);
      worker.Send(std::move(message));
    }
  });
  const HttpAnswer http =
      Http("POST", "/v1/completions", "x-api-key: key-alice\r\n", R"({"prompt": "hi"})");
  EXPECT_EQ(http.status, 429) << http.body;
  EXPECT_THAT(http.head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(http.body, HasSubstr("max_waiting_grammars"));
}

TEST_F(DoorTest, LimitsOfAKeyAreEnforcedByName) {
  FakeWorker worker(MemberOptions());
  v1::GenerateRequest request = Ask("hi");
  request.set_max_tokens(10);
  const auto first = Begin("key-limited", request);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  const grpc::Status second = Ended("key-limited", request);
  EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(second.error_message(), HasSubstr("requests_in_flight"));
  const HttpAnswer http = Http("POST",
                               "/v1/completions",
                               "x-api-key: key-limited\r\n",
                               R"({"prompt": "hi", "max_tokens": 10})");
  EXPECT_EQ(http.status, 429) << http.body;
  EXPECT_THAT(http.head, HasSubstr("Retry-After"));
  EXPECT_THAT(http.body, AllOf(HasSubstr("requests_in_flight"), HasSubstr("rate_limit_exceeded")));
  EXPECT_EQ(second.error_details(), "") << "no request has ended, so the time is unknown";
  worker.Say(dispatch, 0, 0, "x", FinishReason::kStop);
  worker.Finish(dispatch);
  EXPECT_TRUE(first->ReadToEnd().ok());

  request.set_max_tokens(51);
  EXPECT_THAT(Ended("key-limited", request).error_message(), HasSubstr("output_tokens"));
  request.set_max_tokens(10);
  request.set_text(std::string(101, 'x'));
  EXPECT_THAT(Ended("key-limited", request).error_message(), HasSubstr("prompt_tokens"));
  const HttpAnswer broken =
      Http("POST", "/v1/completions", "x-api-key: key-limited\r\n", R"({"prompt": )");
  EXPECT_EQ(broken.status, 400);
  const HttpAnswer large =
      Http("POST", "/v1/completions", "x-api-key: key-limited\r\n", std::string(2001, ' '));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr("2000 bytes"));

  const Json status =
      Json::parse(Http("GET", "/status.json", "Authorization: Basic YTprZXktcm9vdA==\r\n").body);
  const Json& caller = status["callers"].at(0);
  EXPECT_EQ(caller["id"], "of-limited/limited");
  EXPECT_EQ(caller["running"], "0");
  EXPECT_EQ(caller["errors"]["RESOURCE_EXHAUSTED"], "2");
  EXPECT_EQ(caller["errors"]["INVALID_ARGUMENT"], "3");

  const HttpAnswer never = Http("POST",
                                "/v1/completions",
                                "x-api-key: key-limited\r\n",
                                R"({"prompt": ["a", "b"], "max_tokens": 1})");
  EXPECT_EQ(never.status, 400) << "two prompts never fit into one request in flight";
  EXPECT_THAT(never.body, AllOf(HasSubstr("requests_in_flight"), HasSubstr("2 prompts")));
  EXPECT_THAT(never.head, ::testing::Not(HasSubstr("Retry-After")));
}

TEST_F(DoorTest, ARefusalTellsWhenTheLimitHasRoomAgain) {
  // Requests count even when they are wrong.
  v1::GenerateRequest wrong = Ask("hi");
  wrong.set_model("other");
  EXPECT_EQ(Ended("key-rare", wrong).error_code(), grpc::StatusCode::NOT_FOUND);
  const grpc::Status refused = Ended("key-rare", wrong);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  rpc::ErrorStatus details;
  rpc::RetryInfo retry;
  ASSERT_TRUE(details.ParseFromString(refused.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(retry.ParseFromString(details.details(0).value()));
  EXPECT_GE(retry.retry_delay().seconds(), 5);
  EXPECT_LT(retry.retry_delay().seconds(), 10);
  const HttpAnswer http =
      Http("POST", "/v1/completions", "x-api-key: key-rare\r\n", R"({"prompt": "hi"})");
  EXPECT_EQ(http.status, 429) << http.body;
  EXPECT_THAT(http.head, ContainsRegex("Retry-After: (10|[5-9])\r"));
}

}  // namespace
}  // namespace baton
