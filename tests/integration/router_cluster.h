#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include "common/rpc/channel.h"
#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "proto/generation.grpc.pb.h"
#include "router/router_service.h"
#include "tests/integration/process.h"

namespace baton {

constexpr auto kLong = std::chrono::seconds(120);

// Requests that differ in length, sampling and number of samples.
inline v1::GenerateRequest MakeRequest(int number) {
  v1::GenerateRequest request;
  for (int i = 0; i < 1 + number * 37 % 200; ++i) {
    request.mutable_tokens()->add_ids((i * (number % 3 + 1) + number / 3) % 250);
  }
  request.set_max_tokens(4 + number * 5 % 28);
  request.set_ignore_eos(true);
  request.set_echo_tokens(true);
  request.mutable_sampling()->set_temperature(number % 2 == 0 ? 0.0f : 1.0f);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(number));
  if (number % 4 == 1) request.mutable_sampling()->set_top_p(0.9f);
  if (number % 5 == 2) request.mutable_sampling()->set_repetition_penalty(1.3f);
  request.set_samples(number % 7 == 3 ? 3 : 1);
  return request;
}

struct Answer {
  std::map<int, std::vector<int>> tokens;  // by sample
  v1::Timings timings;
  grpc::Status status;
};

// Settings that differ from the defaults, as "path.to.field=value".
struct ClusterSettings {
  std::vector<std::string> workers;
  std::vector<std::string> decode = {};  // only for decode workers
  std::vector<std::string> router = {};
};

// A router and its workers in one process.
class Cluster final {
 public:
  Cluster(const std::string& model, int prefill, int decode, const ClusterSettings& settings)
      : router_(&router::StartRouter, RouterOverrides(model, settings)) {
    std::vector<std::string> worker_overrides = settings.workers;
    worker_overrides.insert(worker_overrides.end(),
                            {"model.path=" + model,
                             "engine.threads=1",
                             "routers=[" + router_.address("workers") + "]"});
    for (int i = 0; i < prefill; ++i) {
      workers_.push_back(std::make_unique<InProcess>(&StartPrefillWorker, worker_overrides));
    }
    worker_overrides.insert(worker_overrides.end(), settings.decode.begin(), settings.decode.end());
    for (int i = 0; i < decode; ++i) {
      workers_.push_back(std::make_unique<InProcess>(&StartDecodeWorker, worker_overrides));
    }
    stub_ = v1::Generation::NewStub(MakeChannel(router_.address("grpc")));
    Await([this] { return router_.service().Ready().ok(); });
    for (const auto& worker : workers_) Await([&] { return worker->service().Ready().ok(); });
  }

  Answer Ask(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLong);
    const auto stream = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse response;
    while (stream->Read(&response)) {
      auto& tokens = answer.tokens[response.sample()];
      tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
      if (response.has_timings()) answer.timings = response.timings();
      if (response.has_error()) ADD_FAILURE() << response.error().message();
    }
    answer.status = stream->Finish();
    return answer;
  }

  // Sends the requests 0 … count - 1 at the same time.
  std::vector<Answer> AskAll(int count) {
    std::vector<Answer> answers(static_cast<size_t>(count));
    std::vector<std::jthread> clients;
    clients.reserve(answers.size());
    for (int i = 0; i < count; ++i) {
      clients.emplace_back([&, i] { answers[static_cast<size_t>(i)] = Ask(MakeRequest(i)); });
    }
    clients.clear();
    return answers;
  }

  void ExpectNoLeaks() {
    for (const auto& worker : workers_) {
      Await([&] { return worker->Metric("baton_kv_cache_utilization") == 0; });
      EXPECT_EQ(worker->Metric("baton_kv_leaked_blocks"), 0);
      EXPECT_EQ(worker->Metric("baton_worker_sequences_running"), 0);
      EXPECT_EQ(worker->Metric("baton_worker_sequences_waiting"), 0);
    }
  }

  InProcess& router() { return router_; }
  const std::vector<std::unique_ptr<InProcess>>& workers() const { return workers_; }
  double RouterMetric(const std::string& metric) { return router_.Metric(metric); }

  double Sum(const std::string& metric) {
    double sum = 0;
    for (const auto& worker : workers_) sum += worker->Metric(metric);
    return sum;
  }

 private:
  static std::vector<std::string> RouterOverrides(const std::string& model,
                                                  const ClusterSettings& settings) {
    std::vector<std::string> overrides = {
        "model.path=" + model, "heartbeat_ms=50", "model.name=tiny"};
    overrides.insert(overrides.end(), settings.router.begin(), settings.router.end());
    return overrides;
  }

  static void Await(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (!condition() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(condition());
  }

  InProcess router_;
  std::vector<std::unique_ptr<InProcess>> workers_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

inline void ExpectSame(const std::vector<Answer>& found, const std::vector<Answer>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(wanted[i].status.ok()) << wanted[i].status.error_message();
    EXPECT_TRUE(found[i].status.ok()) << found[i].status.error_message();
    EXPECT_EQ(found[i].tokens, wanted[i].tokens) << "request " << i;
  }
}

}  // namespace baton
