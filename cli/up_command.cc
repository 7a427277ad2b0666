#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/generation_client.h"
#include "cli/local_cluster.h"
#include "cli/report.h"
#include "common/app/signal_waiter.h"
#include "common/config/home.h"
#include "common/rpc/address.h"

namespace baton {
namespace {

constexpr auto kDrainLimit = std::chrono::seconds(40);
constexpr auto kWatchEvery = std::chrono::milliseconds(500);
constexpr const char* kDefaultModel = "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

struct UpFlags {
  std::string model = HomeFolder() + kDefaultModel;
  int prefill = 2;
  int decode = 2;
  bool counted = false;  // the user set --prefill or --decode
  RankCounts prefill_ranks;
  RankCounts decode_ranks;
  std::vector<std::string> device;
  std::vector<std::string> prefill_device;
  std::vector<std::string> decode_device;
  int threads = 0;
  std::string listen = kDefaultServer;
  std::string admin = kDefaultAdmin;
  std::string http = "127.0.0.1:8080";
  std::string prompt = "What is a relay race, and why does the baton matter?";
  int max_tokens = 96;
  bool once = false;
  double start_seconds = 120;
  std::vector<std::string> router_set;
  std::vector<std::string> worker_set;
};

bool PortIsFree(uint16_t port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Returns `listen`, or the same host with port 0 (any free port) when the port is in use.
StatusOr<std::string> FreeAddress(const std::string& listen) {
  BATON_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(listen));
  if (address.port == 0 || PortIsFree(address.port)) return listen;
  fmt::print("port {} is in use: using a free one\n", address.port);
  address.port = 0;
  return address.ToString();
}

WorkerCounts CountsOf(const UpFlags& flags) {
  const bool by_role = !flags.prefill_device.empty() || !flags.decode_device.empty();
  const bool gpus = !flags.device.empty() && flags.device.front() != "cpu";
  if (gpus && !by_role && !flags.counted) return CountsForDevices(flags.device);
  const auto count = [&](int number, const std::vector<std::string>& own, const RankCounts& ranks) {
    if (own.empty() || flags.counted) return number;
    return std::max(1, static_cast<int>(own.size()) / ranks.ranks());
  };
  const auto devices = [&](const std::vector<std::string>& own) {
    return own.empty() ? flags.device : own;
  };
  WorkerCounts counts;
  counts.prefill = count(flags.prefill, flags.prefill_device, flags.prefill_ranks);
  counts.decode = count(flags.decode, flags.decode_device, flags.decode_ranks);
  counts.prefill_ranks = flags.prefill_ranks;
  counts.decode_ranks = flags.decode_ranks;
  counts.prefill_devices = devices(flags.prefill_device);
  counts.decode_devices = devices(flags.decode_device);
  return counts;
}

StatusOr<LocalClusterOptions> ToOptions(const UpFlags& flags, const std::string& log_folder) {
  if (std::error_code error; !std::filesystem::exists(flags.model, error)) {
    return MakeStatus(StatusCode::kNotFound,
                      "there is no model at {}; `./dev model` downloads the default model, --model "
                      "takes any GGUF file or Hugging Face directory",
                      flags.model);
  }
  LocalClusterOptions options;
  options.binary_folder = BinaryFolder();
  options.log_folder = log_folder;
  options.model = std::filesystem::absolute(flags.model).string();
  options.workers = CountsOf(flags);
  options.threads = flags.threads;
  BATON_ASSIGN_OR_RETURN(options.listen, FreeAddress(flags.listen));
  BATON_ASSIGN_OR_RETURN(options.admin, FreeAddress(flags.admin));
  BATON_ASSIGN_OR_RETURN(options.http, FreeAddress(flags.http));
  options.router_set = flags.router_set;
  options.worker_set = flags.worker_set;
  return options;
}

Status FirstPrompt(const UpFlags& flags, const std::string& server) {
  fmt::print("\n> {}\n", flags.prompt);
  GenerateCall call;
  call.turns.push_back({"user", flags.prompt});
  call.max_tokens = flags.max_tokens;
  call.temperature = 0;
  GenerationClient client(server);
  BATON_ASSIGN_OR_RETURN(const GenerateAccount account,
                         client.Generate(call, [](std::string_view text) {
                           fmt::print("{}", text);
                           std::fflush(stdout);
                         }));
  fmt::print("\n\nTime of each phase:\n{}", FormatAccount(account));
  std::fflush(stdout);
  return OkStatus();
}

void PrintAddresses(LocalCluster& cluster, const std::string& log_folder) {
  const std::string& http = cluster.router().addresses.at("http");
  std::vector<std::vector<std::string>> rows = {{"PROCESS", "PID", "ADDRESSES"}};
  for (const auto& member : cluster.members()) {
    std::string addresses;
    for (const auto& [name, address] : member.addresses) {
      addresses += fmt::format("{}={} ", name, address);
    }
    rows.push_back({member.name, fmt::format("{}", member.process->pid()), addresses});
  }
  const std::string server =
      cluster.server() == kDefaultServer ? "" : " --server " + cluster.server();
  const std::string admin = cluster.admin() == kDefaultAdmin ? "" : " --admin " + cluster.admin();
  fmt::print(
      "\nThe cluster is up; Ctrl-C drains it. Logs: {}\n{}\n"
      "  baton chat{}\n"
      "  baton status --watch{}\n"
      "  curl http://{}/metrics\n"
      "Another worker joins with --set 'routers=[\"{}\"]' --set security.cluster_secret_file={}\n",
      log_folder,
      FormatTable(rows),
      server,
      admin,
      http,
      cluster.router().addresses.at("workers"),
      cluster.secret_file());
  std::fflush(stdout);
}

void StayUp(LocalCluster& cluster, const SignalWaiter& signals) {
  while (signals.Wait(kWatchEvery) == 0) {
    for (const auto& exit : cluster.TakeExits()) {
      fmt::print("{}\n", exit);
      std::fflush(stdout);
    }
  }
}

Status Up(const UpFlags& flags) {
  const SignalWaiter signals({SIGINT, SIGTERM, SIGHUP});
  const std::string log_folder = fmt::format("{}/logs/up-{}", HomeFolder(), ::getpid());
  BATON_ASSIGN_OR_RETURN(const LocalClusterOptions options, ToOptions(flags, log_folder));
  std::error_code error;
  std::filesystem::create_directories(log_folder, error);
  if (error) return InvalidArgument("cannot create the folder {}: {}", log_folder, error.message());
  fmt::print("Starting 1 router, {} prefill and {} {} workers with {}\n",
             options.workers.prefill,
             options.workers.decode,
             options.workers.unified ? "unified" : "decode",
             options.model);
  std::fflush(stdout);
  BATON_ASSIGN_OR_RETURN(const auto cluster,
                         LocalCluster::Start(options, FromSeconds(flags.start_seconds)));
  if (!flags.prompt.empty()) {
    BATON_RETURN_IF_ERROR(FirstPrompt(flags, cluster->server()));
  }
  PrintAddresses(*cluster, log_folder);
  if (!flags.once) StayUp(*cluster, signals);
  fmt::print("draining …\n");
  std::fflush(stdout);
  if (!cluster->Drain(kDrainLimit)) {
    return MakeStatus(StatusCode::kInternal,
                      "some processes did not end cleanly; their logs are in {}",
                      log_folder);
  }
  std::filesystem::remove_all(log_folder, error);
  return OkStatus();
}

}  // namespace

void AddUpCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<UpFlags>();
  CLI::App* command =
      app.add_subcommand("up", "Run a cluster on this machine and send it a first prompt");
  command->add_option("--model", flags->model, "a GGUF file or Hugging Face directory");
  command->add_option("--prefill", flags->prefill, "number of prefill workers")
      ->check(CLI::Range(0, 64));
  command->add_option("--decode", flags->decode, "number of decode workers")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--device",
                   flags->device,
                   "devices of the workers: cpu, or GPUs as cuda:0,cuda:1. Without --prefill and "
                   "--decode each GPU gets one worker, and the first half are prefill workers; a "
                   "single GPU gets one unified worker")
      ->delimiter(',');
  command->add_option("--prefill-device", flags->prefill_device, "devices of the prefill workers")
      ->delimiter(',');
  command->add_option("--decode-device", flags->decode_device, "devices of the decode workers")
      ->delimiter(',');
  const auto add_ranks = [command](const char* name, int& to, const char* text) {
    command->add_option(name, to, text)->check(CLI::Range(1, 64));
  };
  add_ranks("--prefill-tp",
            flags->prefill_ranks.tensor_parallel,
            "ranks of each prefill worker that share its layers (tensor parallelism)");
  add_ranks("--prefill-pp",
            flags->prefill_ranks.pipeline_parallel,
            "stages of layers of each prefill worker (pipeline parallelism)");
  add_ranks("--decode-tp",
            flags->decode_ranks.tensor_parallel,
            "ranks of each decode worker that share its layers");
  add_ranks("--decode-pp",
            flags->decode_ranks.pipeline_parallel,
            "stages of layers of each decode worker");
  command->add_option("--threads", flags->threads, "CPU threads of each rank; 0: all processors")
      ->check(CLI::Range(0, 256));
  command->add_option("--listen", flags->listen, "host:port of the gRPC API");
  command->add_option("--admin", flags->admin, "host:port of the gRPC API for operators");
  command->add_option("--http", flags->http, "host:port of the HTTP API and the status page");
  command->add_option("--prompt", flags->prompt, "the first prompt; empty: none");
  command->add_option("--max-tokens", flags->max_tokens, "the most tokens of the first answer")
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--once", flags->once, "drain and exit after the first answer");
  command->add_option("--start-seconds", flags->start_seconds, "seconds that the start may take")
      ->check(CLI::Range(1.0, 86400.0));
  command->add_option("--router-set", flags->router_set, "path=value for --set of the router")
      ->allow_extra_args(false);
  command->add_option("--worker-set", flags->worker_set, "path=value for --set of each worker")
      ->allow_extra_args(false);
  command->callback([flags, command, &exit_status] {
    flags->counted = command->count("--prefill") + command->count("--decode") > 0;
    exit_status = Report(Up(*flags));
  });
}

}  // namespace baton
