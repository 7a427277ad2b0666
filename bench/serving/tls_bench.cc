// What TLS costs a router: the rate and the processor time of one with TLS and of one without. The
// routers are processes on the first processor. Their 64 clients on persistent connections of
// HTTP/1.1, which one thread serves, and the workers that compute nothing, share the second one.
// The routers are measured in turn. Prints, for answers of one token and of 64 tokens, the median
// of each measure of both routers, and the median of the ratios within the rounds: requests per
// second, processor time of the router for a request, and `busy`, the part of its processor that
// the router uses. Far below 1, the clients bound the rate. `noise` has the ratios of two routers
// without TLS.
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
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
#include "common/app/child_process.h"
#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"
#include "common/model/model_identity.h"
#include "tests/fakes/byte_model.h"
#include "tests/fakes/fake_worker.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

constexpr int kClients = 64;

constexpr int kRouterProcessor = 0;
constexpr int kOtherProcessor = 1;
constexpr auto kStartLimit = std::chrono::seconds(30);
// So short that 64 requests in each step are more than a router can deliver.
constexpr auto kStepTime = std::chrono::microseconds(300);
constexpr int kAnswerLimitMs = 60000;

// Keeps this thread, and the threads and processes that it starts from now on, on one processor.
void RunOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  BATON_CHECK(::sched_setaffinity(0, sizeof(set), &set) == 0,
              "processor {} is not usable; this benchmark needs processors {} and {}",
              processor,
              kRouterProcessor,
              kOtherProcessor);
}

std::unique_ptr<ChildProcess> StartRouter(const std::vector<std::string>& settings) {
  ChildOptions options;
  options.command = {BinaryFolder() + "/baton-router"};
  for (const std::string& setting : settings) {
    options.command.insert(options.command.end(), {"--set", setting});
  }
  RunOn(kRouterProcessor);
  auto process = ChildProcess::Start(options);
  RunOn(kOtherProcessor);
  BATON_CHECK(process.ok(), "{}", Message(process.status()));
  return *std::move(process);
}

// A router, its worker and its clients.
class Bed final {
 public:
  // `files`: the router's certificate; empty: no TLS. `ca_file`: its authority.
  Bed(const ByteModel& model, const CertificateFiles& files, const std::string& ca_file)
      : process_(StartRouter({"model.path=" + model.path(),
                              "listen=127.0.0.1:0",
                              "worker_listen=127.0.0.1:0",
                              "admin_listen=127.0.0.1:0",
                              "process.http_listen=127.0.0.1:0",
                              "suspect_ms=600000",  // a worker is silent during the other's turn
                              "lost_ms=600000",
                              "security.tls.certificate_file=" + files.certificate,
                              "security.tls.key_file=" + files.key})) {
    const auto addresses = process_->WaitReady(kStartLimit);
    BATON_CHECK(addresses.ok(), "{}", Message(addresses.status()));
    BATON_CHECK(::clock_getcpuclockid(process_->pid(), &cpu_) == 0, "no clock of the router");
    FakeWorker::Options options;
    options.router = addresses->at("workers");
    const auto identity = IdentifyModel(model.path(), {});
    BATON_CHECK(identity.ok(), "{}", Message(identity.status()));
    options.model = *identity;
    worker_ = std::make_unique<FakeWorker>(options);
    for (int i = 0; i < kClients; ++i) {
      clients_.push_back(std::make_unique<EventClient>(addresses->at("http"), ca_file));
      epoll_event event{.events = EPOLLIN, .data = {.ptr = clients_.back().get()}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, clients_.back()->fd(), &event);
    }
  }

  struct Rate {
    double requests_per_s = 0;
    double cpu_us = 0;  // of the router, for a request
    double busy = 0;    // the part of its processor that the router uses
  };
  // The clients send `requests` each, on average, for answers of `tokens` tokens.
  Rate Measure(int requests, int tokens) {
    const size_t first = answered_;
    answered_ += static_cast<size_t>(requests) * kClients;
    std::jthread answers = StartThread(
        "worker", [&, first](const std::stop_token&) { Compute(first, answered_, tokens); });
    const std::string body =
        fmt::format(R"({{"prompt": "Hi", "max_tokens": {}, "stream": true}})", tokens);
    const double cpu_before = CpuSeconds();
    const Time start = SteadyClock().Now();
    Send(requests * kClients, body);
    const double seconds = ToSeconds(SteadyClock().Now() - start);
    const double cpu = CpuSeconds() - cpu_before;
    const double all = requests * kClients;
    return {all / seconds, cpu / all * 1e6, cpu / seconds};
  }

 private:
  // Of the router since its start.
  double CpuSeconds() const {
    timespec time{};
    ::clock_gettime(cpu_, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  // Sends `requests` with all clients, each the next one when it has an answer.
  void Send(int requests, const std::string& body) {
    int begun = 0;
    const auto begin = [&](EventClient& client) {
      if (begun++ < requests) client.Begin("/v1/completions", body);
    };
    for (const auto& client : clients_) begin(*client);
    for (int answered = 0; answered < requests;) {
      epoll_event events[kClients];
      const int ready = ::epoll_wait(epoll_.get(), events, kClients, kAnswerLimitMs);
      BATON_CHECK(ready > 0, "the router sent nothing for {} ms", kAnswerLimitMs);
      for (int i = 0; i < ready; ++i) {
        auto& client = *static_cast<EventClient*>(events[i].data.ptr);
        if (!client.Read()) continue;
        ++answered;
        begin(client);
      }
    }
  }
  // Answers the dispatches from `first` to `end` as an engine does: each step gives a token to each
  // running request, and one message has the tokens of a step.
  void Compute(size_t first, size_t end, int tokens) {
    struct Running {
      uint64_t request = 0;
      uint64_t epoch = 0;
      int made = 0;  // tokens
    };
    std::vector<Running> running;
    for (size_t next = first; next < end || !running.empty();) {
      if (running.empty()) worker_->AwaitDispatch(next);
      for (const size_t arrived = worker_->dispatches(); next < arrived; ++next) {
        const auto dispatch = worker_->AwaitDispatch(next);
        running.push_back({dispatch.request_id(), dispatch.epoch()});
      }
      worker::v1::ToRouter step;
      for (Running& request : running) {
        worker::v1::Token& token = *step.add_tokens();
        token.set_request_id(request.request);
        token.set_epoch(request.epoch);
        token.set_index(request.made++);
        token.set_token('a');
        if (request.made < tokens) continue;
        token.set_finish(static_cast<int>(FinishReason::kLength));
        worker::v1::Finished& finished = *step.add_finished();
        finished.set_request_id(request.request);
        finished.set_epoch(request.epoch);
      }
      worker_->Send(std::move(step));
      std::erase_if(running, [&](const Running& request) { return request.made == tokens; });
      std::this_thread::sleep_for(kStepTime);
    }
  }

  const std::unique_ptr<ChildProcess> process_;
  clockid_t cpu_ = 0;
  std::unique_ptr<FakeWorker> worker_;
  std::vector<std::unique_ptr<EventClient>> clients_;
  const UniqueFd epoll_{::epoll_create1(EPOLL_CLOEXEC)};
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
  std::vector<double> busy[2];
  plain.Measure(requests / 10, tokens);  // warm-up
  encrypted.Measure(requests / 10, tokens);
  for (int round = 0; round < rounds; ++round) {
    for (const bool tls : {round % 2 == 0, round % 2 != 0}) {
      const Bed::Rate rate = (tls ? encrypted : plain).Measure(requests, tokens);
      rates[tls ? 1 : 0].push_back(rate.requests_per_s);
      times[tls ? 1 : 0].push_back(rate.cpu_us);
      busy[tls ? 1 : 0].push_back(rate.busy);
    }
  }
  return {{"requests_per_s", Medians(rates[0], rates[1], true)},
          {"cpu_us", Medians(times[0], times[1], false)},
          {"busy", {{"plain", Median(busy[0])}, {"tls", Median(busy[1])}}}};
}

// The median, least and greatest ratio of the second router to the first, without TLS in both.
nlohmann::json Noise(const nlohmann::json& compared) {
  nlohmann::json ratios;
  for (const char* measure : {"requests_per_s", "cpu_us"}) {
    for (const char* ratio : {"ratio", "least_ratio", "greatest_ratio"}) {
      ratios[measure][ratio] = compared.at(measure).at(ratio);
    }
  }
  return ratios;
}

int Run(int rounds) {
  RunOn(kOtherProcessor);
  const TestAuthority authority;
  TestAuthority::Leaf leaf;
  leaf.ip_addresses = {"127.0.0.1"};
  const CertificateFiles files = authority.Make(leaf);
  const ByteModel model = ByteModel::WithoutWeights(1 << 20);
  Bed plain(model, {}, "");
  Bed encrypted(model, files, authority.ca_file());
  nlohmann::json result = {{"benchmark", "tls"},
                           {"clients", kClients},
                           {"rounds", rounds},
                           {"one_token", Compare(plain, encrypted, rounds, 100, 1)},
                           {"tokens_64", Compare(plain, encrypted, rounds, 20, 64)}};
  // Started now, because routers close connections that are silent for long.
  Bed other(model, {}, "");
  result["noise"] = {{"one_token", Noise(Compare(plain, other, rounds, 100, 1))},
                     {"tokens_64", Noise(Compare(plain, other, rounds, 20, 64))}};
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
