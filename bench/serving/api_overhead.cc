#include "bench/serving/api_overhead.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>

#include "bench/serving/event_client.h"
#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/base/thread.h"
#include "common/model/model_identity.h"
#include "common/rpc/channel.h"
#include "proto/generation.grpc.pb.h"
#include "router/router_service.h"
#include "tests/fakes/byte_model.h"
#include "tests/fakes/fake_worker.h"
#include "tests/integration/process.h"

namespace baton {
namespace {

constexpr int kWarmUp = 20;
constexpr int kInTurn = 200;
constexpr int kClients = 16;
constexpr int kPerClient = 100;
constexpr int kRequests = kWarmUp + kInTurn + kClients * kPerClient;  // for each API

// Requests one token and returns the milliseconds until the token arrives.
using Client = std::function<double()>;

Client MakeGrpcClient(const std::string& address) {
  std::shared_ptr<v1::Generation::Stub> stub = v1::Generation::NewStub(MakeChannel(address));
  return [stub] {
    v1::GenerateRequest request;
    request.set_text("Hi");
    request.set_max_tokens(1);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const Time start = SteadyClock().Now();
    const auto stream = stub->Generate(&context, request);
    v1::GenerateResponse response;
    BATON_CHECK(stream->Read(&response), "the stream ended before a token arrived");
    const double ms = ToMillis(SteadyClock().Now() - start);
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    BATON_CHECK(status.ok(), "{}", status.error_message());
    return ms;
  };
}

Client MakeHttpClient(const std::string& address) {
  const auto client = std::make_shared<EventClient>(address);
  return [client] {
    return client->Stream("/v1/completions", R"({"prompt": "Hi", "max_tokens": 1, "stream": true})")
        .front();
  };
}

nlohmann::json Measure(const std::function<Client()>& make_client) {
  const Client client = make_client();
  for (int i = 0; i < kWarmUp; ++i) client();
  std::vector<double> first_ms;
  first_ms.reserve(kInTurn);
  for (int i = 0; i < kInTurn; ++i) first_ms.push_back(client());
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(make_client());
  const Time start = SteadyClock().Now();
  std::vector<std::jthread> threads;
  for (const Client& one : clients) {
    threads.push_back(StartThread("client", [&one](const std::stop_token&) {
      for (int i = 0; i < kPerClient; ++i) one();
    }));
  }
  threads.clear();
  const double seconds = ToSeconds(SteadyClock().Now() - start);
  return {{"ttft_ms", {{"median", Median(first_ms)}, {"p99", Quantile(first_ms, 0.99)}}},
          {"requests_per_s", kClients * kPerClient / seconds}};
}

}  // namespace

nlohmann::json MeasureApiOverhead() {
  const ByteModel model = ByteModel::WithoutWeights(1 << 20);
  InProcess router(&router::StartRouter, {"model.path=" + model.path()});
  FakeWorker::Options options;
  options.router = router.address("workers");
  const auto identity = IdentifyModel(model.path(), {});
  BATON_CHECK(identity.ok(), "{}", Message(identity.status()));
  options.model = *identity;
  FakeWorker worker(options);
  const std::jthread answers = StartThread("worker", [&worker](const std::stop_token&) {
    for (size_t i = 0; i < size_t{2} * kRequests; ++i) {
      const worker::v1::Dispatch dispatch = worker.AwaitDispatch(i);
      worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
      worker.Finish(dispatch);
    }
  });
  const nlohmann::json grpc = Measure([&] { return MakeGrpcClient(router.address("grpc")); });
  const nlohmann::json http = Measure([&] { return MakeHttpClient(router.http()); });
  return {{"clients", kClients}, {"grpc", grpc}, {"http", http}};
}

}  // namespace baton
