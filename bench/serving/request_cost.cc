// The processor time of a tiny request: compares the programs of two or more build folders. Each
// has a cluster of processes, a router and a unified worker, that runs for the whole measurement.
// In each round every cluster serves the same requests, in an order that alternates. Prints, for
// each cluster, the medians of processor time, context switches and requests per second, and the
// medians of the ratios to the first cluster within the rounds.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <nlohmann/json.hpp>

#include "bench/serving/event_client.h"
#include "cli/local_cluster.h"
#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/base/thread.h"
#include "proto/generation.grpc.pb.h"
#include "tests/fakes/byte_model.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr auto kLimit = std::chrono::seconds(120);

struct Options {
  std::string model;
  std::vector<std::string> binaries;
  int rounds = 12;
  int requests = 2000;
  int clients = 16;
  int connections = 4;
  int tokens = 1;
  int prompt_bytes = 2;
  bool http = false;
  bool split = false;
  std::string log_folder;
};

// What the processes of a cluster have used since their start.
struct Usage {
  double router_s = 0;
  double workers_s = 0;
  double switches = 0;
};

double CpuSeconds(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  BATON_CHECK(::clock_getcpuclockid(pid, &clock) == 0, "process {} has no clock", pid);
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double SwitchesOf(pid_t pid) {
  double all = 0;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    std::ifstream status(task.path() / "status");
    for (std::string name; status >> name;) {
      double count = 0;
      if (name.ends_with("_ctxt_switches:") && status >> count) all += count;
    }
  }
  return all;
}

// Sends `requests` over gRPC, each of `clients` the next one when it has an answer.
class GrpcLoad final {
 public:
  GrpcLoad(const std::string& address, const Options& options) : options_(options) {
    for (int i = 0; i < options.connections; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      stubs_.push_back(v1::Generation::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
    }
    request_.set_text(std::string(static_cast<size_t>(options.prompt_bytes), 'a'));
    request_.set_max_tokens(options.tokens);
    request_.set_ignore_eos(true);
    request_.set_echo_tokens(true);
  }

  void Run(int requests) {
    left_ = requests;
    std::latch ended(options_.clients);
    ended_ = &ended;
    for (int i = 0; i < options_.clients; ++i) Next(i);
    ended.wait();
  }

 private:
  struct Call final : grpc::ClientReadReactor<v1::GenerateResponse> {
    Call(GrpcLoad& owner, int slot) : load(owner), client(slot) {}
    void OnReadDone(bool ok) override {
      if (!ok) return;
      received += response.token_ids_size();
      StartRead(&response);
    }
    void OnDone(const grpc::Status& status) override {
      BATON_CHECK(status.ok(), "{}", status.error_message());
      BATON_CHECK(received == load.options_.tokens, "an answer has {} tokens", received);
      GrpcLoad& owner = load;
      const int slot = client;
      delete this;
      owner.Next(slot);
    }

    GrpcLoad& load;
    const int client;
    grpc::ClientContext context;
    v1::GenerateResponse response;
    int received = 0;
  };

  void Next(int client) {
    if (left_.fetch_sub(1) <= 0) return ended_->count_down();
    auto* const call = new Call(*this, client);  // deletes itself
    const size_t index = static_cast<size_t>(client) % stubs_.size();
    stubs_[index]->async()->Generate(&call->context, &request_, call);
    call->StartRead(&call->response);
    call->StartCall();
  }

  const Options& options_;
  std::vector<std::unique_ptr<v1::Generation::Stub>> stubs_;
  v1::GenerateRequest request_;
  std::atomic<int> left_{0};
  std::latch* ended_ = nullptr;
};

// The same over HTTP, with a connection for each client.
class HttpLoad final {
 public:
  HttpLoad(const std::string& address, const Options& options)
      : body_(fmt::format(R"({{"prompt": "{}", "max_tokens": {}, "stream": true, )"
                          R"("ignore_eos": true}})",
                          std::string(static_cast<size_t>(options.prompt_bytes), 'a'),
                          options.tokens)) {
    for (int i = 0; i < options.clients; ++i) {
      clients_.push_back(std::make_unique<EventClient>(address));
    }
  }

  void Run(int requests) {
    std::atomic<int> left = requests;
    std::vector<std::jthread> threads;
    for (const auto& client : clients_) {
      threads.push_back(StartThread("client", [&](const std::stop_token&) {
        while (left.fetch_sub(1) > 0) client->Stream("/v1/completions", body_);
      }));
    }
  }

 private:
  const std::string body_;
  std::vector<std::unique_ptr<EventClient>> clients_;
};

class Bed final {
 public:
  Bed(const std::string& binaries, const std::string& model, const Options& options, size_t index) {
    LocalClusterOptions cluster;
    cluster.binary_folder = std::filesystem::absolute(binaries);
    cluster.model = model;
    cluster.threads = 1;
    cluster.workers.decode = 1;
    cluster.workers.prefill = options.split ? 1 : 0;
    cluster.workers.unified = !options.split;
    cluster.worker_set = {"engine.kv_blocks=2048"};
    cluster.log_folder = fmt::format("{}/{}", options.log_folder, index);
    std::filesystem::create_directories(cluster.log_folder);
    auto started = LocalCluster::Start(cluster, kLimit);
    BATON_CHECK(started.ok(), "{}", Message(started.status()));
    cluster_ = *std::move(started);
    if (options.http) {
      http_ = std::make_unique<HttpLoad>(cluster_->router().addresses.at("http"), options);
    } else {
      grpc_ = std::make_unique<GrpcLoad>(cluster_->server(), options);
    }
    Run(options.clients * 4);
  }

  // By name: microseconds and context switches for a request, and requests per second.
  std::map<std::string, double> Measure(int requests) {
    const Usage before = Used();
    const Time start = SteadyClock().Now();
    Run(requests);
    const double seconds = ToSeconds(SteadyClock().Now() - start);
    const Usage after = Used();
    const double router = (after.router_s - before.router_s) / requests * 1e6;
    const double workers = (after.workers_s - before.workers_s) / requests * 1e6;
    return {{"router_us", router},
            {"workers_us", workers},
            {"cpu_us", router + workers},
            {"switches", (after.switches - before.switches) / requests},
            {"requests_per_s", requests / seconds}};
  }

 private:
  void Run(int requests) { http_ != nullptr ? http_->Run(requests) : grpc_->Run(requests); }

  Usage Used() {
    Usage usage;
    for (ClusterMember& member : cluster_->members()) {
      const pid_t pid = member.process->pid();
      const bool router = &member == &cluster_->router();
      (router ? usage.router_s : usage.workers_s) += CpuSeconds(pid);
      usage.switches += SwitchesOf(pid);
    }
    return usage;
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<GrpcLoad> grpc_;
  std::unique_ptr<HttpLoad> http_;
};

int Run(Options options) {
  if (options.binaries.empty()) options.binaries = {BinaryFolder()};
  const ByteModel model = ByteModel::From(options.model);
  std::vector<std::unique_ptr<Bed>> beds;
  for (const std::string& binaries : options.binaries) {
    beds.push_back(std::make_unique<Bed>(binaries, model.path(), options, beds.size()));
  }
  std::vector<std::map<std::string, std::vector<double>>> values(beds.size());
  std::vector<std::map<std::string, std::vector<double>>> ratios(beds.size());
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<std::map<std::string, double>> measured(beds.size());
    for (size_t i = 0; i < beds.size(); ++i) {
      const size_t index = round % 2 == 0 ? i : beds.size() - 1 - i;
      measured[index] = beds[index]->Measure(options.requests);
    }
    for (size_t i = 0; i < beds.size(); ++i) {
      for (const auto& [name, value] : measured[i]) {
        values[i][name].push_back(value);
        ratios[i][name].push_back(value / measured[0].at(name));
      }
    }
  }
  for (size_t i = 0; i < beds.size(); ++i) {
    Json result = {{"binaries", options.binaries[i]}};
    for (const auto& [name, all] : values[i]) result[name] = Median(all);
    for (const auto& [name, all] : ratios[i]) {
      if (i > 0) result["ratio"][name] = {Quantile(all, 0.25), Median(all), Quantile(all, 0.75)};
    }
    std::puts(result.dump().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Options options;
  options.log_folder = std::filesystem::temp_directory_path() / "baton-request-cost";
  CLI::App app("Compares the processor time that builds use for a tiny request");
  app.option_defaults()->always_capture_default();
  app.add_option("model", options.model, "folder of a small model, e.g. tests/data/tiny/llama_gqa")
      ->required();
  app.add_option("--binaries", options.binaries, "folders with Baton's programs; empty: its own");
  app.add_option("--rounds", options.rounds, "measurements of each cluster");
  app.add_option("--requests", options.requests, "requests of a measurement");
  app.add_option("--clients", options.clients, "requests at once");
  app.add_option("--connections", options.connections, "connections of gRPC that they share");
  app.add_option("--tokens", options.tokens, "tokens of each answer");
  app.add_option("--prompt-bytes", options.prompt_bytes, "length of the prompt");
  app.add_flag("--http", options.http, "requests over HTTP instead of gRPC");
  app.add_flag("--split", options.split, "a prefill and a decode worker instead of a unified one");
  app.add_option("--log-folder", options.log_folder, "gets a folder of logs for each cluster");
  CLI11_PARSE(app, argc, argv);
  return baton::Run(options);
}
