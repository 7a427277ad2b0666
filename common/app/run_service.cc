#include "common/app/run_service.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/app/admin_endpoints.h"
#include "common/app/command_documents.h"
#include "common/app/descriptor_limit.h"
#include "common/app/heap_trim.h"
#include "common/app/process_probe.h"
#include "common/app/signal_waiter.h"
#include "common/app/version.h"
#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/log/line_writer.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace pb = google::protobuf;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
// Descriptors that are reserved for gRPC, KV data, files and probes.
constexpr int kOtherDescriptors = 512;
constexpr auto kSignalPoll = std::chrono::milliseconds(50);
constexpr auto kOutputLimit = std::chrono::seconds(1);  // the longest wait for stdout or stderr
constexpr size_t kMaxReadyBytes = size_t{1} << 20;

const Logger kLog("app");

// Parses the flags and loads the configuration. Returns an exit status when the process must end
// now: after --help, --version or --dump-default-config, or after an error.
// Sets `rank_socket` when the process is a rank of a group (kRankSocketFlag).
std::optional<int> ParseFlags(
    const ServiceInfo& info, int argc, char** argv, pb::Message& config, int& rank_socket) {
  CLI::App app(info.summary, info.name);
  ConfigSources sources;
  bool dump_default = false;
  app.add_option("--config", sources.files, "YAML file; may be repeated, later files override")
      ->allow_extra_args(false);
  app.add_option("--set", sources.overrides, "path.to.field=value; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--dump-default-config", dump_default, "print all settings with their defaults");
  const std::string hidden;  // not in --help
  app.add_option(fmt::format("--{}", kRankSocketFlag), rank_socket)->group(hidden);
  app.set_version_flag("--version", fmt::format("{} {}", info.name, Version()));
  AddDocumentFlags(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream complaint;
    const int status = app.exit(error, std::cout, complaint);
    WriteStderr(complaint.str());
    return status == 0 ? 0 : kExitUsage;
  }
  if (dump_default) {
    SetDefaults(config);
    fmt::print("{}", ToYaml(config));
    return 0;
  }
  if (const Status loaded = LoadConfig(sources, config); !loaded.ok()) {
    WriteStderr(fmt::format("{}: {}\n", info.name, Message(loaded)));
    return kExitUsage;
  }
  return std::nullopt;
}

// The message in the field `name` that the configuration of every process has.
template <class Part>
const Part& PartOf(const pb::Message& message, const char* name) {
  const auto* field = message.GetDescriptor()->FindFieldByName(name);
  BATON_CHECK(field != nullptr, "{} has no field `{}`", message.GetTypeName(), name);
  return dynamic_cast<const Part&>(message.GetReflection()->GetMessage(message, field));
}

Status SetUpLog(const config::LogConfig& log) {
  LogOptions options;
  options.level = static_cast<LogLevel>(log.level());
  for (const auto& [module, level] : log.modules()) {
    auto parsed = ParseLogLevel(level);
    if (!parsed.ok()) return Annotate(parsed.status(), "process.log.modules." + module);
    options.modules[module] = *parsed;
  }
  ConfigureLogging(options);
  return OkStatus();
}

// A body over max_waiting_body_bytes would get status 503 and Retry-After at every try.
Status CheckHttpLimits(const config::HttpLimits& limits) {
  if (limits.max_body_bytes() <= limits.max_waiting_body_bytes()) return OkStatus();
  return InvalidArgument(
      "process.http_limits.max_body_bytes is {}; it must be at most max_waiting_body_bytes, which "
      "is {}: a larger body could never be accepted",
      limits.max_body_bytes(),
      limits.max_waiting_body_bytes());
}

HttpServerOptions HttpOptionsOf(const config::ProcessConfig& process, MetricsRegistry& metrics) {
  const config::HttpLimits& limits = process.http_limits();
  HttpServerOptions options;
  options.listen = process.http_listen();
  options.handler_threads = process.http_threads();
  options.max_connections =
      ConnectionsWithin(RaiseDescriptorLimit(), limits.max_connections(), kOtherDescriptors);
  if (options.max_connections < limits.max_connections()) {
    kLog.Warning(
        "process.http_limits.max_connections is {}, but the limit of open files (ulimit -Hn) "
        "allows only {} beside {} descriptors for other uses",
        limits.max_connections(),
        options.max_connections,
        kOtherDescriptors);
  }
  options.max_connections_per_address = limits.max_connections_per_address();
  options.reserved_connections = limits.reserved_connections();
  options.max_header_bytes = static_cast<size_t>(limits.max_header_bytes());
  options.max_body_bytes = static_cast<size_t>(limits.max_body_bytes());
  options.max_waiting_body_bytes = static_cast<size_t>(limits.max_waiting_body_bytes());
  options.header_timeout = FromSeconds(limits.header_timeout_seconds());
  options.body_timeout = FromSeconds(limits.body_timeout_seconds());
  options.idle_timeout = FromSeconds(limits.idle_timeout_seconds());
  options.write_timeout = FromSeconds(limits.write_timeout_seconds());
  options.metrics = &metrics;
  return options;
}

// Ends the process at a signal while the service starts: loading weights may take minutes, and
// there is nothing to drain yet.
std::jthread ExitOnSignal(const SignalWaiter& signals) {
  return StartThread("startup", [&signals](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (const int signal = signals.Wait(kSignalPoll); signal > 0) {
        kLog.Info("stopped by a signal while starting");
        FlushLog(kOutputLimit);
        ::_exit(128 + signal);
      }
    }
  });
}

// The answer of /readyz: Unavailable while there is no service, then the service's own.
class Readiness final {
 public:
  void Set(const Service* service) {
    std::lock_guard lock(mutex_);
    service_ = service;
  }
  Status Get() const {
    std::lock_guard lock(mutex_);
    if (service_ == nullptr) return Status(StatusCode::kUnavailable, "starting or stopping");
    return service_->Ready();
  }

 private:
  mutable std::mutex mutex_;
  const Service* service_ = nullptr;
};

void AnnounceReady(const HttpServer& http, const Service& service) {
  nlohmann::json addresses = service.addresses();
  addresses["http"] = http.address();
  const std::string line = fmt::format("ready {}", addresses.dump());
  // Never destroyed, so that a line that is still queued can be written later.
  static auto* const out =
      new LineWriter(STDOUT_FILENO, kMaxReadyBytes, [](uint64_t) { return std::string(); });
  out->Write(line + "\n");
  if (!out->Flush(kOutputLimit)) kLog.Warning("nobody reads stdout: its pipe is full");
  kLog.Info("{}", line);
}

// Returns OK after a signal or when the service has finished, or the service's Failure().
Status RunUntilEnd(const Service& service, const SignalWaiter& signals) {
  HeapTrim heap;
  while (signals.Wait(kSignalPoll) == 0) {
    heap.Tick(SteadyClock().Now());
    BATON_RETURN_IF_ERROR(service.Failure());
    if (service.Finished()) break;
  }
  return OkStatus();
}

void DrainAndStop(Service& service, const SignalWaiter& signals, Duration limit) {
  std::atomic<bool> drained{false};
  const std::jthread drain = StartThread("drain", [&](const std::stop_token&) {
    service.Drain(limit);
    drained = true;
  });
  while (!drained) {
    if (signals.Wait(kSignalPoll) > 0) {
      kLog.Warning("second signal: stopping at once");
      break;
    }
  }
  service.Stop();
}

}  // namespace

int ExitStatusOf(const Status& error) {
  return error.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

int RunService(const ServiceInfo& info,
               int argc,
               char** argv,
               pb::Message& config,
               const std::function<StatusOr<std::unique_ptr<Service>>(AppContext&)>& start,
               const RunRankFunction& run_rank) {
  int rank_socket = -1;
  if (const auto exit = ParseFlags(info, argc, argv, config, rank_socket)) return *exit;
  const auto& process = PartOf<config::ProcessConfig>(config, "process");
  for (const Status& checked : {SetUpLog(process.log()), CheckHttpLimits(process.http_limits())}) {
    if (checked.ok()) continue;
    WriteStderr(fmt::format("{}: {}\n", info.name, Message(checked)));
    return kExitUsage;
  }
  FlushLogOnCrash();
  if (run_rank) {
    if (const auto exit = run_rank(UniqueFd(rank_socket))) return *exit;
  }
  const SignalWaiter signals({SIGTERM, SIGINT});
  const SteadyClock clock;
  MetricsRegistry metrics;
  const ProcessProbe process_probe(metrics);
  const auto security =
      ProcessSecurity::Open(PartOf<config::SecurityConfig>(config, "security"), metrics);
  if (!security.ok()) {
    WriteStderr(fmt::format("{}: {}\n", info.name, Message(security.status())));
    return kExitUsage;
  }
  Readiness readiness;
  HttpServerOptions http_options = HttpOptionsOf(process, metrics);
  http_options.starting = true;
  http_options.gate = (*security)->MakeHttpGate(process.http_listen());
  http_options.streams = (*security)->http_streams();
  auto http = HttpServer::Start(http_options);
  if (!http.ok()) {
    kLog.Error("process.http_listen: {}", Message(http.status()));
    return kExitFailed;
  }
  AddAdminEndpoints(**http, metrics, [&readiness] { return readiness.Get(); });

  AppContext context{metrics, **http, clock, **security};
  std::jthread startup = ExitOnSignal(signals);
  auto service = start(context);
  startup = {};
  if (!service.ok()) {
    kLog.Error("{} cannot start: {}", info.name, Message(service.status()));
    return ExitStatusOf(service.status());
  }
  (*http)->SetStarted();
  readiness.Set(service->get());
  AnnounceReady(**http, **service);
  const Status failure = RunUntilEnd(**service, signals);
  if (!failure.ok()) {
    kLog.Error("{} cannot go on: {}", info.name, Message(failure));
    (*service)->Stop();
    // The destructors of a lost device may take long or hang.
    FlushLog(kOutputLimit);
    ::_exit(kExitFailed);
  }
  if ((*service)->Finished()) {
    kLog.Info("{} has finished its work and exits", info.name);
    (*service)->Stop();
  } else {
    kLog.Info("draining for at most {} s", process.drain_seconds());
    (*http)->Drain();
    DrainAndStop(**service, signals, FromSeconds(process.drain_seconds()));
  }
  readiness.Set(nullptr);
  (*http)->Stop();
  service->reset();
  kLog.Info("stopped");
  return 0;
}

}  // namespace baton
