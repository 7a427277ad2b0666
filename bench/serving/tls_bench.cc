// two are measured in turn, with 16 clients on persistent connections of HTTP/1.1. Prints, for
// answers of one token and of 64 tokens, the median requests per second of both, and the median of
// the ratios within the rounds; and the same of the processor time of a request. The rates contain
// the clients' own encryption, because clients and router share the processors; the times do not.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "bench/serving/event_client.h"
#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/base/thread.h"
#include "common/model/model_identity.h"
#include "router/router_service.h"
#include "tests/fakes/byte_model.h"
#include "tests/fakes/fake_worker.h"
#include "tests/integration/process.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

constexpr int kClients = 16;

double CpuSeconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A router, its worker and its clients.
class Bed final {
 public:
  // `files`: the router's certificate; empty: no TLS. `ca_file`: its authority.
  Bed(const ByteModel& model, const CertificateFiles& files, std::string ca_file)
      : ca_file_(std::move(ca_file)),
        router_(&router::StartRouter,
                {"model.path=" + model.path(),
                 "suspect_ms=600000",  // the worker is silent while the other router is measured
                 "lost_ms=600000",
                 "security.tls.certificate_file=" + files.certificate,
                 "security.tls.key_file=" + files.key}),
        worker_(WorkerOptions(model)) {
    for (int i = 0; i < kClients; ++i) {
      clients_.push_back(std::make_unique<EventClient>(router_.http(), ca_file_));
    }
  }

  struct Rate {
    double requests_per_s = 0;
    double cpu_us = 0;  // a request, of the process without the threads of clients and answers
  };
  // Each client sends `requests` for answers of `tokens` tokens.
  Rate Measure(int requests, int tokens) {
    const size_t first = answered_;
    answered_ += static_cast<size_t>(requests) * kClients;
    std::atomic<double> others{0};  // CPU seconds of the threads that are no part of the router
    std::jthread answers = StartThread("worker", [&, first](const std::stop_token&) {
      for (size_t i = first; i < answered_; ++i) Answer(worker_.AwaitDispatch(i), tokens);
      others += CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
    });
    const std::string body =
        fmt::format(R"({{"prompt": "Hi", "max_tokens": {}, "stream": true}})", tokens);
    const double cpu_before = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    const Time start = SteadyClock().Now();
    std::vector<std::jthread> threads;
    for (const auto& client : clients_) {
      threads.push_back(StartThread("client", [&](const std::stop_token&) {
        for (int i = 0; i < requests; ++i) client->Stream("/v1/completions", body);
        others += CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
      }));
    }
    threads.clear();
    const double seconds = ToSeconds(SteadyClock().Now() - start);
    answers.join();
    const double cpu = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_before - others;
    const double all = requests * kClients;
    return {all / seconds, cpu / all * 1e6};
  }

 private:
  FakeWorker::Options WorkerOptions(const ByteModel& model) {
    FakeWorker::Options options;
    options.router = router_.address("workers");
    const auto identity = IdentifyModel(model.path(), {});
    BATON_CHECK(identity.ok(), "{}", Message(identity.status()));
    options.model = *identity;
    return options;
  }
  void Answer(const worker::v1::Dispatch& dispatch, int tokens) {
    for (int i = 0; i < tokens; ++i) {
      const bool last = i + 1 == tokens;
      worker_.Say(dispatch, 0, i, "a", last ? FinishReason::kLength : FinishReason::kNone);
    }
    worker_.Finish(dispatch);
  }

  const std::string ca_file_;
  InProcess router_;
  FakeWorker worker_;
  std::vector<std::unique_ptr<EventClient>> clients_;
  size_t answered_ = 0;
};

// The medians of one measure of both routers, and of the ratios within the rounds.
nlohmann::json Medians(const std::vector<double>& plain,
                       const std::vector<double>& encrypted,
                       bool greatest_is_best) {
  std::vector<double> ratios;
  for (size_t i = 0; i < plain.size(); ++i) ratios.push_back(encrypted[i] / plain[i]);
  // On a busy machine the least disturbed round says most.
  const auto best = [](const std::vector<double>& values, bool greatest) {
    return greatest ? *std::ranges::max_element(values) : *std::ranges::min_element(values);
  };
  return {{"plain", Median(plain)},
          {"tls", Median(encrypted)},
          {"best_plain", best(plain, greatest_is_best)},
          {"best_tls", best(encrypted, greatest_is_best)},
          {"ratio", Median(ratios)},
          {"least_ratio", *std::ranges::min_element(ratios)},
          {"greatest_ratio", *std::ranges::max_element(ratios)}};
}

nlohmann::json Compare(Bed& plain, Bed& encrypted, int rounds, int requests, int tokens) {
  std::vector<double> rates[2];
  std::vector<double> times[2];
  plain.Measure(requests / 10, tokens);  // warm-up
  encrypted.Measure(requests / 10, tokens);
  for (int round = 0; round < rounds; ++round) {
    for (const bool tls : {round % 2 == 0, round % 2 != 0}) {
      const Bed::Rate rate = (tls ? encrypted : plain).Measure(requests, tokens);
      rates[tls ? 1 : 0].push_back(rate.requests_per_s);
      times[tls ? 1 : 0].push_back(rate.cpu_us);
    }
  }
  return {{"requests_per_s", Medians(rates[0], rates[1], true)},
          {"cpu_us", Medians(times[0], times[1], false)}};
}

int Run(int rounds) {
  const TestAuthority authority;
  TestAuthority::Leaf leaf;
  leaf.ip_addresses = {"127.0.0.1"};
  const CertificateFiles files = authority.Make(leaf);
  const ByteModel model = ByteModel::WithoutWeights(1 << 20);
  Bed plain(model, {}, "");
  Bed encrypted(model, files, authority.ca_file());
  const nlohmann::json result = {{"benchmark", "tls"},
                                 {"clients", kClients},
                                 {"rounds", rounds},
                                 {"one_token", Compare(plain, encrypted, rounds, 200, 1)},
                                 {"tokens_64", Compare(plain, encrypted, rounds, 40, 64)}};
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  int rounds = 9;
  CLI::App app("Measures what TLS costs the router");
  app.add_option("--rounds", rounds, "Pairs of measurements")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  return baton::Run(rounds);
}
