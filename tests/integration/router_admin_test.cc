#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/integration/router_service.h"

// A router's gRPC services: text, models, administration, health, reflection.
namespace baton {
namespace {

using ::testing::HasSubstr;

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
  options.context_length = 1000;  // it can do less than the model
  FakeWorker worker(options);
  Await([&] { return list().models(0).context_length() == 1000; }, "the worker's length");
  EXPECT_FALSE(list().models(0).fingerprint().empty());
}

// ---- administration

TEST_F(RouterServiceTest, DrainWorkerTellsTheWorkerAndSendsItNothingMore) {
  FakeWorker leaving(WorkerOptions("leaving"));
  const auto drain = [&](const std::string& id) {
    grpc::ClientContext context;
    admin::v1::DrainWorkerRequest request;
    request.set_worker_id(id);
    admin::v1::DrainWorkerResponse response;
    return admin_->DrainWorker(&context, request, &response);
  };
  const grpc::Status unknown = drain("nobody");
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("nobody"));
  EXPECT_EQ(drain("").error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(drain("leaving").ok());
  leaving.AwaitDrain();
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
    ExpectBothHealth("not serving");  // nobody can decode
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
  const grpc::Status refused = StatusOf(Ask("y"));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("shutting down"));
  EXPECT_EQ(drained.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(drained.wait_for(kCallLimit), std::future_status::ready);
}

TEST_F(RouterServiceTest, ReflectionListsTheServices) {
  const RawAnswer answer = RawCall(channel_,
                                   "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                   StringField(7, "*"));
  for (const char* service :
       {"baton.v1.Generation", "baton.admin.v1.Admin", "grpc.health.v1.Health"}) {
    EXPECT_THAT(answer.bytes, HasSubstr(service));
  }
  EXPECT_THAT(answer.bytes, ::testing::Not(HasSubstr("WorkerHub")));
}

}  // namespace
}  // namespace baton
