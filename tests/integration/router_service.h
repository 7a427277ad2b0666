#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include "common/model/model_identity.h"
#include "common/rpc/channel.h"
#include "proto/admin.grpc.pb.h"
#include "proto/generation.grpc.pb.h"
#include "router/router_service.h"
#include "tests/fakes/byte_model.h"
#include "tests/fakes/fake_worker.h"
#include "tests/integration/process.h"
#include "tests/integration/raw_rpc.h"

namespace baton {

constexpr auto kCallLimit = std::chrono::seconds(60);
constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
constexpr int32_t kContext = 1 << 20;

// The wire format of a protobuf field of type string.
inline std::string StringField(int number, const std::string& value) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  for (size_t rest = value.size(); true; rest >>= 7) {
    out.push_back(static_cast<char>((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0)));
    if (rest <= 0x7f) break;
  }
  return out + value;
}

inline void Await(const std::function<bool()>& condition, const char* what) {
  const auto limit = std::chrono::steady_clock::now() + kCallLimit;
  while (!condition() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(condition()) << "timed out waiting for: " << what;
}

inline v1::GenerateRequest Ask(const std::string& text, int32_t samples = 1) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.set_samples(samples);
  request.set_max_tokens(100'000);
  request.mutable_sampling()->set_seed(1);
  return request;
}

// One Generate call.
struct Call {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> stream;
  std::map<int, std::string> text;  // by sample
  std::map<int, v1::FinishReason> finish;
  v1::GenerateResponse last;

  bool Read() {
    if (!stream->Read(&last)) return false;
    text[last.sample()] += last.text();
    if (last.finish() != v1::FINISH_REASON_UNSPECIFIED) finish[last.sample()] = last.finish();
    return true;
  }
  // Reads until the sample has the text `wanted`.
  void ReadUntil(int sample, const std::string& wanted) {
    while (text[sample] != wanted) ASSERT_TRUE(Read()) << text[sample];
  }
  grpc::Status ReadToEnd() {
    while (Read()) {
    }
    return stream->Finish();
  }
};

// A router whose services are called over a real server and a real channel, with workers that send
// the messages of a test.
class RouterServiceTest : public ::testing::Test {
 protected:
  explicit RouterServiceTest(std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.begin(),
                     {"model.path=" + model_.path(),
                      "model.name=bytes",
                      "suspect_ms=600000",
                      "lost_ms=600000",
                      "drain_grace_seconds=0"});
    router_ = std::make_unique<InProcess>(&router::StartRouter, std::move(overrides));
    channel_ = MakeChannel(router_->address("grpc"));
    stub_ = v1::Generation::NewStub(channel_);
    admin_ = admin::v1::Admin::NewStub(MakeChannel(router_->address("admin")));
  }

  FakeWorker::Options WorkerOptions(const std::string& id = "worker") {
    FakeWorker::Options options;
    options.router = router_->address("workers");
    options.id = id;
    options.model = IdentifyModel(model_.path(), {}).value();
    return options;
  }

  std::unique_ptr<Call> Begin(const v1::GenerateRequest& request,
                              std::chrono::milliseconds limit = kCallLimit) {
    auto call = std::make_unique<Call>();
    call->context.set_deadline(std::chrono::system_clock::now() + limit);
    call->stream = stub_->Generate(&call->context, request);
    return call;
  }
  grpc::Status StatusOf(const v1::GenerateRequest& request) { return Begin(request)->ReadToEnd(); }

  admin::v1::ClusterStatus ClusterStatus() {
    grpc::ClientContext context;
    admin::v1::ClusterStatus status;
    EXPECT_TRUE(admin_->GetStatus(&context, {}, &status).ok());
    return status;
  }
  void AwaitNoRequest() {
    Await(
        [this] {
          const admin::v1::ClusterStatus status = ClusterStatus();
          return status.requests_running() + status.requests_waiting() == 0;
        },
        "the end of all requests");
  }

  // grpc.health.v1's answer for `service`: "serving", "not serving", or the error.
  std::string Health(const std::string& service) {
    const RawAnswer answer = RawCall(channel_, kHealthCheck, StringField(1, service));
    if (!answer.status.ok()) return answer.status.error_message();
    if (answer.bytes == "\x08\x01") return "serving";
    return answer.bytes == "\x08\x02" ? "not serving" : "unknown answer";
  }
  void ExpectBothHealth(const std::string& wanted) {
    Await([&] { return Health("") == wanted; }, wanted.c_str());
    EXPECT_EQ(Health(""), wanted);
    EXPECT_EQ(Health("baton.v1.Generation"), wanted);
  }

  const ByteModel model_ = ByteModel::WithoutWeights(kContext);
  std::unique_ptr<InProcess> router_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::unique_ptr<admin::v1::Admin::Stub> admin_;
};

}  // namespace baton
