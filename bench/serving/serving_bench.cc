#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>
#include <nlohmann/json.hpp>

#include "common/rpc/channel.h"
#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "proto/generation.grpc.pb.h"
#include "router/router_service.h"
#include "tests/integration/process.h"

namespace baton {
namespace {

struct Sample {
  double first_ms = 0;
  double second_ms = 0;
  v1::Timings timings;
};

class Cluster final {
 public:
  // `transport` empty: one worker that serves alone.
  Cluster(const std::string& model, const std::string& threads, const std::string& transport)
      : router_(&router::StartRouter, {"model.path=" + model}) {
    std::vector<std::string> overrides = {"model.path=" + model,
                                          "engine.threads=" + threads,
                                          "routers=[" + router_.address("workers") + "]"};
    if (!transport.empty()) {
      overrides.push_back("transfer.require_transport=" + transport);
      workers_.push_back(std::make_unique<InProcess>(&StartPrefillWorker, overrides));
    }
    workers_.push_back(std::make_unique<InProcess>(&StartDecodeWorker, overrides));
    stub_ = v1::Generation::NewStub(MakeChannel(router_.address("grpc")));
    for (const auto& worker : workers_) {
      while (!worker->service().Ready().ok() || !router_.service().Ready().ok()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
  }

  Sample Ask(int seed, int tokens) {
    v1::GenerateRequest request;
    for (int i = 0; i < tokens; ++i) {
      request.mutable_tokens()->add_ids(300 + (i * 131 + seed * 7919) % 40000);
    }
    request.set_max_tokens(4);
    request.set_ignore_eos(true);
    request.set_echo_tokens(true);
    request.mutable_sampling()->set_temperature(0);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto start = std::chrono::steady_clock::now();
    const auto stream = stub_->Generate(&context, request);
    Sample sample;
    int got = 0;
    v1::GenerateResponse response;
    while (stream->Read(&response)) {
      const double ms = ToMillis(std::chrono::steady_clock::now() - start);
      const int before = got;
      got += response.token_ids_size();
      if (before < 1 && got >= 1) sample.first_ms = ms;
      if (before < 2 && got >= 2) sample.second_ms = ms;
      if (response.has_timings()) sample.timings = response.timings();
    }
    const grpc::Status status = stream->Finish();
    BATON_CHECK(status.ok() && got == 4, "{} ({} tokens)", status.error_message(), got);
    return sample;
  }

 private:
  InProcess router_;
  std::vector<std::unique_ptr<InProcess>> workers_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

// The value below which `share` of them lie.
double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

double Median(const std::vector<double>& values) {
  return Quantile(values, 0.5);
}

// By round, so that a machine that slows down for a while does not count for one side only.
std::vector<double> Differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return differences;
}

int Run(const std::string& model,
        int rounds,
        int tokens,
        const std::string& threads,
        const std::string& wanted_transport) {
  Cluster unified(model, threads, "");
  Cluster split(model, threads, wanted_transport);
  unified.Ask(1000001, 32);
  split.Ask(1000001, 32);
  std::vector<double> first[2];
  std::vector<double> second[2];
  std::vector<double> transfer;
  std::vector<double> rate;
  std::string transport;
  double bytes = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const int which : {round % 2, 1 - round % 2}) {
      const Sample sample = (which == 0 ? unified : split).Ask(round + 1, tokens);
      first[which].push_back(sample.first_ms);
      second[which].push_back(sample.second_ms);
      if (which == 1) {
        transfer.push_back(sample.timings.transfer_ms());
        rate.push_back(sample.timings.transfer_gbps());
        transport = sample.timings.transport();
        bytes = static_cast<double>(sample.timings.transfer_bytes());
      }
    }
  }
  const std::vector<double> overhead = Differences(first[1], first[0]);
  const nlohmann::json result = {
      {"benchmark", "serving"},
      {"prompt_tokens", tokens},
      {"rounds", rounds},
      {"threads", threads},
      {"unified_ttft_ms", Median(first[0])},
      {"disaggregated_ttft_ms", Median(first[1])},
      {"ttft_overhead_ms", Median(overhead)},
      {"ttft_overhead_quartiles_ms", {Quantile(overhead, 0.25), Quantile(overhead, 0.75)}},
      {"unified_second_token_ms", Median(second[0])},
      {"disaggregated_second_token_ms", Median(second[1])},
      {"second_token_overhead_ms", Median(Differences(second[1], second[0]))},
      {"exposed_transfer_ms", Median(transfer)},
      {"transfer_gbps", Median(rate)},
      {"transfer_bytes", bytes},
      {"transport", transport}};
  std::puts(result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: serving_bench MODEL [ROUNDS] [PROMPT_TOKENS] [THREADS] [shm|tcp]\n", stderr);
    return 2;
  }
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  return baton::Run(argv[1],
                    std::max(1, number(2, 3)),
                    number(3, 1000),
                    argc > 4 ? argv[4] : "2",
                    argc > 5 ? argv[5] : "shm");
}
