// Measures what disaggregation costs a request. README.md describes the method.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpcpp/client_context.h>
#include <nlohmann/json.hpp>

#include "bench/serving/api_overhead.h"
#include "bench/serving/event_client.h"
#include "common/rpc/channel.h"
#include "decode_worker/decode_service.h"
#include "proto/generation.grpc.pb.h"
#include "router/router_service.h"
#include "tests/fakes/byte_model.h"
#include "tests/integration/process.h"

namespace baton {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string model;
  bool dummy = false;
  int rounds = 20;
  int prompt_tokens = 1000;
  int threads = 2;
  std::string transport = "shm";
};

std::string LoadFormat(const Options& options) {
  return fmt::format("model.load_format={}", options.dummy ? "dummy" : "auto");
}

struct Sample {
  double first_ms = 0;
  double second_ms = 0;
  double http_first_ms = 0;  // TTFT of another request of the same kind, sent over HTTP
  v1::Timings timings;

  bool disaggregated() const { return !timings.transport().empty(); }
  // The engine's time from the prompt's first step to the first token.
  double compute_ms() const { return timings.prefill_ms(); }
  double rest_ms() const { return first_ms - compute_ms(); }
};

// A router with one unified worker and one decode worker. The router chooses the decode worker of
// each request by round robin between the two. The unified worker therefore serves every second
// request alone, and the others are handed off. The same engine prefills all requests.
class Cluster final {
 public:
  Cluster(const std::string& model, const Options& options)
      : router_(&router::StartRouter,
                {"model.path=" + model, LoadFormat(options), "policy=round_robin"}) {
    for (const bool unified : {true, false}) {
      workers_.push_back(std::make_unique<InProcess>(
          &StartDecodeWorker,
          std::vector<std::string>{"model.path=" + model,
                                   LoadFormat(options),
                                   fmt::format("unified={}", unified),
                                   fmt::format("engine.threads={}", options.threads),
                                   "engine.kv_memory_mib=256",
                                   "transfer.require_transport=" + options.transport,
                                   "routers=[" + router_.address("workers") + "]"}));
      InProcess& worker = *workers_.back();
      while (!worker.service().Ready().ok()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    stub_ = v1::Generation::NewStub(MakeChannel(router_.address("grpc")));
    http_.emplace(router_.http());
  }

  // Generates four tokens after a prompt that differs from every other request's prompt.
  Sample Ask(int tokens) {
    const std::vector<int> prompt = NextPrompt(tokens);
    v1::GenerateRequest request;
    request.mutable_tokens()->mutable_ids()->Assign(prompt.begin(), prompt.end());
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

  // Sends such a request over HTTP. Returns the time to first token in milliseconds.
  double AskOverHttp(int tokens) {
    const Json request = {{"prompt", NextPrompt(tokens)},
                          {"max_tokens", 4},
                          {"ignore_eos", true},
                          {"temperature", 0},
                          {"stream", true}};
    return http_->Stream("/v1/completions", request.dump()).front();
  }

 private:
  std::vector<int> NextPrompt(int tokens) {
    const int number = asked_++;
    std::vector<int> prompt(static_cast<size_t>(tokens));
    for (int i = 0; i < tokens; ++i) {
      prompt[static_cast<size_t>(i)] = (i * 131 + number * 37 + i / 256 * number) % 256;
    }
    return prompt;
  }

  InProcess router_;
  std::vector<std::unique_ptr<InProcess>> workers_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::optional<EventClient> http_;
  int asked_ = 1;
};

// The median and its 95 % confidence interval by order statistics. The interval assumes nothing
// about the distribution of the values.
Json MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  const double n = static_cast<double>(count);
  const auto low = static_cast<size_t>(std::max(0.0, std::floor((n - 1.96 * std::sqrt(n)) / 2)));
  const double median = (values[(count - 1) / 2] + values[count / 2]) / 2;
  return {{"median", median}, {"interval_95", {values[low], values[count - 1 - low]}}};
}

template <class Figure>
Json MedianOf(const std::vector<Sample>& samples, const Figure& figure) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(figure(sample));
  return MedianOf(std::move(values));
}

Json FirstTokenOf(const std::vector<Sample>& samples) {
  return {{"ttft_ms", MedianOf(samples, [](const Sample& s) { return s.first_ms; })},
          {"http_ttft_ms", MedianOf(samples, [](const Sample& s) { return s.http_first_ms; })},
          {"compute_ms", MedianOf(samples, [](const Sample& s) { return s.compute_ms(); })},
          {"rest_ms", MedianOf(samples, [](const Sample& s) { return s.rest_ms(); })},
          {"second_token_ms", MedianOf(samples, [](const Sample& s) { return s.second_ms; })}};
}

Json TransferOf(const std::vector<Sample>& samples) {
  const v1::Timings& last = samples.back().timings;
  return {
      {"transport", last.transport()},
      {"bytes", last.transfer_bytes()},
      {"gigabytes_per_second",
       MedianOf(samples,
                [](const Sample& s) { return s.timings.transfer_gigabytes_per_second(); })},
      {"exposed_ms", MedianOf(samples, [](const Sample& s) { return s.timings.transfer_ms(); })}};
}

// Differences within pairs, so that a temporary slowdown of the machine affects both sides.
Json Overhead(const std::vector<Sample>& alone, const std::vector<Sample>& split) {
  const auto paired = [&](double (*figure)(const Sample&)) {
    std::vector<double> differences;
    for (size_t i = 0; i < alone.size(); ++i) {
      differences.push_back(figure(split[i]) - figure(alone[i]));
    }
    return MedianOf(std::move(differences));
  };
  return {{"ttft_ms", paired([](const Sample& s) { return s.first_ms; })},
          {"http_ttft_ms", paired([](const Sample& s) { return s.http_first_ms; })},
          {"compute_ms", paired([](const Sample& s) { return s.compute_ms(); })},
          {"rest_ms", paired([](const Sample& s) { return s.rest_ms(); })},
          {"second_token_ms", paired([](const Sample& s) { return s.second_ms; })}};
}

int Run(const Options& options) {
  std::optional<ByteModel> shape;
  if (options.dummy) shape.emplace(ByteModel::From(options.model));
  Cluster cluster(shape.has_value() ? shape->path() : options.model, options);
  for (int i = 0; i < 4; ++i) cluster.Ask(options.prompt_tokens);
  std::vector<Sample> alone;
  std::vector<Sample> split;
  for (int round = 0; round < options.rounds; ++round) {
    Sample pair[] = {cluster.Ask(options.prompt_tokens), cluster.Ask(options.prompt_tokens)};
    for (Sample& sample : pair) {
      // The router alternates and the HTTP requests follow in the same order, so the router treats
      // this request as it treated `sample`.
      sample.http_first_ms = cluster.AskOverHttp(options.prompt_tokens);
      (sample.disaggregated() ? split : alone).push_back(std::move(sample));
    }
    BATON_CHECK(alone.size() == split.size(), "the router did not take turns");
    // One more request, so that the next round starts with the other kind.
    cluster.Ask(32);
  }
  const Json result = {{"benchmark", "serving"},
                       {"prompt_tokens", options.prompt_tokens},
                       {"rounds", options.rounds},
                       {"threads", options.threads},
                       {"unified", FirstTokenOf(alone)},
                       {"disaggregated", FirstTokenOf(split)},
                       {"overhead", Overhead(alone, split)},
                       {"transfer", TransferOf(split)},
                       {"one_token_requests", MeasureApiOverhead()}};
  std::puts(result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Options options;
  CLI::App app("Measures what disaggregation costs a request");
  app.add_option("model", options.model, "GGUF file or Hugging Face directory")->required();
  app.add_flag("--dummy", options.dummy, "Use random weights and a byte tokenizer");
  app.add_option("--rounds", options.rounds, "Pairs of requests")->check(CLI::Range(1, 100000));
  app.add_option("--prompt", options.prompt_tokens, "Prompt tokens")
      ->check(CLI::Range(33, 1000000));
  app.add_option("--threads", options.threads, "Computing threads of each worker")
      ->check(CLI::Range(0, 1024));
  app.add_option("--transport", options.transport, "KV transport to require: shm or tcp");
  CLI11_PARSE(app, argc, argv);
  return baton::Run(options);
}
