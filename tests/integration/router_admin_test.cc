#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/integration/router_service.h"

// Tests of a router's gRPC services: text, models, administration, health, reflection.
namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(RouterServiceTest, TokenizesAndBack) {
  v1::TokenizeRequest request;
  request.set_text("h\xc3\xa9");
  v1::TokenizeResponse tokens;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->Tokenize(&first, request, &tokens).ok());
  EXPECT_THAT(tokens.ids(), ::testing::ElementsAre('h', 0xc3, 0xa9));
  EXPECT_THAT(tokens.pieces(), ::testing::ElementsAre("h", "\xc3", "\xa9"));
  v1::DetokenizeRequest back;
  *back.mutable_ids() = tokens.ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "h\xc3\xa9");

  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("x");
  tokens.Clear();
  grpc::ClientContext third;
  ASSERT_TRUE(stub_->Tokenize(&third, request, &tokens).ok());
  EXPECT_EQ(tokens.ids_size(), 7) << "<user>x";
}

TEST_F(RouterServiceTest, TokenizeAndDetokenizeNameWhatIsWrong) {
  const auto tokenize = [&](const v1::TokenizeRequest& request) {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    return stub_->Tokenize(&context, request, &response);
  };
  v1::TokenizeRequest request;
  EXPECT_THAT(tokenize(request).error_message(), HasSubstr("set text or chat"));
  request.set_text("x");
  request.set_model("other");
  EXPECT_EQ(tokenize(request).error_code(), grpc::StatusCode::NOT_FOUND);
  request.clear_model();
  request.mutable_chat()->set_tools_json("{");
  EXPECT_THAT(tokenize(request).error_message(), HasSubstr("chat.tools_json is not valid JSON"));

  v1::DetokenizeRequest back;
  back.add_ids('x');
  back.add_ids(-1);
  v1::DetokenizeResponse text;
  grpc::ClientContext context;
  const grpc::Status status = stub_->Detokenize(&context, back, &text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ids[1] is -1; the vocabulary has 256 tokens"));
  const RawAnswer answer =
      RawCall(channel_, "/baton.v1.Generation/Tokenize", StringField(2, "\xff"));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RouterServiceTest, ListsItsModel) {
  const auto list = [&] {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    EXPECT_TRUE(stub_->ListModels(&context, {}, &models).ok());
    return models;
  };
  ASSERT_EQ(list().models_size(), 1);
  EXPECT_EQ(list().models(0).name(), "bytes");
  EXPECT_EQ(list().models(0).vocabulary(), 256);
  EXPECT_EQ(list().models(0).context_length(), kContext);
  FakeWorker::Options options = WorkerOptions();
  options.context_length = 1000;  // shorter than the model's context length
  FakeWorker worker(options);
  Await([&] { return list().models(0).context_length() == 1000; }, "the worker's length");
  EXPECT_FALSE(list().models(0).fingerprint().empty());
}

// ---- administration

TEST_F(RouterServiceTest, DrainWorkerTellsTheWorkerAndSendsItNothingMore) {
  FakeWorker leaving(WorkerOptions("leaving"));
  const auto drain = [&](const std::string& id, bool keep = false) {
    grpc::ClientContext context;
    admin::v1::DrainWorkerRequest request;
    request.set_worker_id(id);
    request.set_keep(keep);
    admin::v1::DrainWorkerResponse response;
    return admin_->DrainWorker(&context, request, &response);
  };
  const grpc::Status unknown = drain("nobody");
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("nobody"));
  EXPECT_EQ(drain("").error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(drain("leaving", true).ok());
  EXPECT_TRUE(leaving.AwaitDrain().keep());
  ASSERT_EQ(ClusterStatus().workers_size(), 1);
  EXPECT_EQ(ClusterStatus().workers(0).state(), "draining");
  ExpectBothHealth("not serving");
  FakeWorker staying(WorkerOptions("staying"));
  ExpectBothHealth("serving");
  const auto call = Begin(Ask("x"));
  const worker::v1::Dispatch dispatch = staying.AwaitDispatch();
  staying.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  staying.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(ClusterStatus().requests_total(), 1);
  EXPECT_EQ(ClusterStatus().requests_failed(), 0);
}

// The status code of an empty request to `method`, which shows whether the router serves the method
// on this port.
grpc::StatusCode CodeAt(InProcess& router, const char* port, const char* method) {
  return RawCall(MakeChannel(router.address(port)), method, "").status.error_code();
}

TEST_F(RouterServiceTest, OperatorsHaveAPortOfTheirOwn) {
  for (const char* method : {"/baton.admin.v1.Admin/GetStatus",
                             "/baton.admin.v1.Admin/DrainWorker",
                             "/baton.admin.v1.Admin/GenerateOn"}) {
    EXPECT_NE(CodeAt(*router_, "admin", method), grpc::StatusCode::UNIMPLEMENTED) << method;
    EXPECT_EQ(CodeAt(*router_, "grpc", method), grpc::StatusCode::UNIMPLEMENTED) << method;
    EXPECT_EQ(CodeAt(*router_, "workers", method), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
  for (const char* method :
       {"/baton.v1.Generation/ListModels", "/baton.worker.v1.WorkerLink/Open"}) {
    EXPECT_EQ(CodeAt(*router_, "admin", method), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
  EXPECT_EQ(router_->address("admin").rfind("127.0.0.1:", 0), 0u) << "the default is not loopback";
}

TEST_F(RouterServiceTest, AWorkerOfAnotherModelIsRefusedAndListed) {
  const ByteModel other = ByteModel::WithoutWeights(kContext, 512);
  FakeWorker::Options options = WorkerOptions("tiny");
  options.model = IdentifyModel(other.path(), {}).value();
  options.vocabulary = 512;
  for (int attempt = 0; attempt < 3; ++attempt) {
    FakeWorker worker(options);
    const Status refusal = worker.AwaitRefusal();
    EXPECT_EQ(refusal.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(Message(refusal)),
                AllOf(HasSubstr("worker tiny has another model"),
                      HasSubstr("vocabulary 512"),
                      HasSubstr("this router's is bytes (vocabulary 256")));
  }
  EXPECT_FALSE(router_->service().Ready().ok());
  FakeWorker right(WorkerOptions("right"));
  ExpectBothHealth("serving");
  const admin::v1::ClusterStatus status = ClusterStatus();
  EXPECT_EQ(status.workers_size(), 1);
  ASSERT_EQ(status.refused_joins_size(), 1);
  EXPECT_EQ(status.refused_joins(0).worker_id(), "tiny");
  EXPECT_EQ(status.refused_joins(0).attempts(), 3);
  EXPECT_THAT(status.refused_joins(0).address(), HasSubstr("127.0.0.1:"));
  EXPECT_THAT(status.refused_joins(0).reason(), HasSubstr("vocabulary 512"));
}

TEST_F(RouterServiceTest, AnotherVersionOrSecretIsRefusedAndListed) {
  FakeWorker::Options options = WorkerOptions("old");
  options.version = worker::v1::PROTOCOL_VERSION + 1;
  EXPECT_THAT(std::string(Message(FakeWorker(options).AwaitRefusal())),
              HasSubstr(fmt::format("worker old speaks protocol version {}, this router version {}",
                                    options.version,
                                    static_cast<int>(worker::v1::PROTOCOL_VERSION))));
  options = WorkerOptions("stranger");
  options.hash_secret = 5;
  EXPECT_THAT(std::string(Message(FakeWorker(options).AwaitRefusal())),
              HasSubstr("another hash_secret"));
  const admin::v1::ClusterStatus status = ClusterStatus();
  ASSERT_EQ(status.refused_joins_size(), 2);
  EXPECT_EQ(status.refused_joins(0).worker_id(), "stranger");
  EXPECT_EQ(status.refused_joins(1).worker_id(), "old");
}

TEST_F(RouterServiceTest, QuarantinedBlocksAndCacheGroupsAreInTheStatus) {
  FakeWorker worker(WorkerOptions());
  worker::v1::ToRouter message;
  message.mutable_heartbeat()->set_blocks_quarantined(7);
  worker::v1::CacheGroup& group = *message.mutable_heartbeat()->add_cache_groups();
  group.set_name("latent");
  group.set_layers(61);
  group.set_bytes(18432);
  group.set_blocks_held(9);
  worker.Send(message);
  Await([&] { return ClusterStatus().workers(0).blocks_quarantined() == 7; }, "the heartbeat");
  const admin::v1::ClusterStatus status = ClusterStatus();
  ASSERT_EQ(status.workers(0).cache_groups_size(), 1);
  const admin::v1::CacheGroupStatus& shown = status.workers(0).cache_groups(0);
  EXPECT_EQ(shown.name(), "latent");
  EXPECT_EQ(shown.layers(), 61);
  EXPECT_EQ(shown.bytes(), 18432u);
  EXPECT_EQ(shown.blocks_held(), 9);
}

TEST_F(RouterServiceTest, TheAcceptanceOfDraftsIsInTheStatus) {
  FakeWorker worker(WorkerOptions());
  EXPECT_FALSE(ClusterStatus().workers(0).has_draft_acceptance());
  worker::v1::ToRouter message;
  message.mutable_heartbeat()->set_drafts(8);
  message.mutable_heartbeat()->set_accepted_drafts(5);
  worker.Send(message);
  Await([&] { return ClusterStatus().workers(0).draft_acceptance() == 0.625; }, "the heartbeat");
}

TEST_F(RouterServiceTest, HealthFollowsTheWorkers) {
  ExpectBothHealth("not serving");
  EXPECT_FALSE(router_->service().Ready().ok());
  EXPECT_NE(Health("no.such.Service"), "serving");
  {
    FakeWorker::Options options = WorkerOptions("p");
    options.prefill = true;
    options.decode = false;
    FakeWorker prefill(options);
    Await([&] { return ClusterStatus().workers_size() == 1; }, "the prefill worker");
    ExpectBothHealth("not serving");  // there is no decode worker
    FakeWorker decode(WorkerOptions("d"));
    ExpectBothHealth("serving");
    EXPECT_TRUE(router_->service().Ready().ok());
  }
  ExpectBothHealth("not serving");
}

TEST_F(RouterServiceTest, ADrainingRouterIsNotServingAndEndsWhatItHas) {
  FakeWorker worker(WorkerOptions());
  ExpectBothHealth("serving");
  const auto call = Begin(Ask("x"));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  const auto drained =
      std::async(std::launch::async, [&] { router_->service().Drain(std::chrono::seconds(60)); });
  ExpectBothHealth("not serving");
  EXPECT_EQ(Message(router_->service().Ready()), "this router is shutting down");
  // The router first reports that it is not ready, and later refuses new requests.
  v1::GenerateRequest late = Ask("y");
  late.set_timeout_ms(50);
  grpc::Status refused;
  Await(
      [&] {
        refused = StatusOf(late);
        return refused.error_code() == grpc::StatusCode::UNAVAILABLE;
      },
      "a refusal");
  EXPECT_THAT(refused.error_message(), HasSubstr("shutting down"));
  EXPECT_EQ(drained.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(drained.wait_for(kCallLimit), std::future_status::ready);
}

class LongGrace : public RouterServiceTest {
 protected:
  LongGrace() : RouterServiceTest({"drain_grace_seconds=3600"}) {}
};

TEST_F(LongGrace, ADrainServesAsALameDuckFirst) {
  FakeWorker worker(WorkerOptions());
  ExpectBothHealth("serving");
  const auto drained =
      std::async(std::launch::async, [&] { router_->service().Drain(std::chrono::seconds(60)); });
  ExpectBothHealth("not serving");
  EXPECT_EQ(Message(router_->service().Ready()), "this router is shutting down");
  const auto call = Begin(Ask("x"));  // a client that does not know of the shutdown yet
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(drained.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  router_->service().Stop();  // a second signal
  EXPECT_EQ(drained.wait_for(kCallLimit), std::future_status::ready);
}

TEST(RouterStart, TimesThatContradictEachOtherAreRefused) {
  const ByteModel model = ByteModel::WithoutWeights(kContext);
  const auto start = [&](const std::vector<std::string>& settings) {
    config::RouterConfig config;
    ConfigSources sources;
    sources.overrides = settings;
    sources.overrides.push_back("model.path=" + model.path());
    EXPECT_TRUE(LoadConfig(sources, config).ok());
    MetricsRegistry metrics;
    SteadyClock clock;
    const auto http = HttpServer::Start({});
    const auto security = ProcessSecurity::Open(config.security(), metrics);
    AppContext context{metrics, **http, clock, **security};
    const auto router = router::StartRouter(config, context);
    EXPECT_EQ(router.status().code(), StatusCode::kInvalidArgument);
    return std::string(Message(router.status()));
  };
  EXPECT_THAT(start({"suspect_ms=2000", "lost_ms=1999"}),
              HasSubstr("lost_ms is 1999; it must be at least suspect_ms, which is 2000"));
  EXPECT_THAT(start({"heartbeat_ms=500", "suspect_ms=500"}),
              HasSubstr("suspect_ms is 500; it must be more than heartbeat_ms, which is 500"));
  EXPECT_THAT(start({"model_aliases=[a, a]"}), HasSubstr("model_aliases has \"a\" twice"));
  EXPECT_THAT(start({"model_aliases=[a, \"\"]"}), HasSubstr("model_aliases has an empty name"));
}

TEST_F(RouterServiceTest, ReflectionListsTheServicesOfEachPort) {
  for (const std::string version : {"v1", "v1alpha"}) {
    SCOPED_TRACE(version);
    const auto ask = [&](const char* port, int member, const std::string& what) {
      return RawCall(MakeChannel(router_->address(port)),
                     "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo",
                     StringField(member, what))
          .bytes;
    };
    EXPECT_THAT(ask("grpc", 7, "*"),
                AllOf(HasSubstr("baton.v1.Generation"),
                      HasSubstr("grpc.health.v1.Health"),
                      HasSubstr("grpc.reflection.v1.ServerReflection"),
                      Not(HasSubstr("Admin")),
                      Not(HasSubstr("WorkerLink"))));
    EXPECT_THAT(ask("admin", 7, "*"),
                AllOf(HasSubstr("baton.admin.v1.Admin"), Not(HasSubstr("WorkerLink"))));
    EXPECT_THAT(ask("grpc", 4, "baton.v1.Generation"),
                AllOf(HasSubstr("proto/generation.proto"), HasSubstr("Detokenize")));
    EXPECT_THAT(ask("admin", 3, "proto/admin.proto"), HasSubstr("DrainWorkerRequest"));
    EXPECT_THAT(ask("grpc", 4, "no.such.Symbol"), Not(HasSubstr("proto/")));
  }
}

TEST_F(RouterServiceTest, EveryServiceHasHealth) {
  FakeWorker worker(WorkerOptions());
  ExpectBothHealth("serving");
  for (const auto& [port, service] : {std::pair("admin", "baton.admin.v1.Admin"),
                                      std::pair("workers", "baton.worker.v1.WorkerLink")}) {
    const RawAnswer answer =
        RawCall(MakeChannel(router_->address(port)), kHealthCheck, StringField(1, service));
    EXPECT_TRUE(answer.status.ok()) << service << answer.status.error_message();
    EXPECT_EQ(answer.bytes, std::string("\x08\x01", 2)) << service;  // SERVING
  }
}

}  // namespace
}  // namespace baton
