#include "common/worker/worker_service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "common/app/version.h"
#include "common/base/hash.h"
#include "common/base/host_port.h"
#include "common/log/log.h"
#include "common/worker/rank_config_wire.h"

namespace baton {
namespace {

constexpr Duration kLogLimit = std::chrono::seconds(1);

const Logger kLog("worker");

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

// Parses kv_advertise. The port is 0 when kv_advertise is only a host.
StatusOr<HostPort> AdvertisedHostPort(const config::WorkerConfig& config) {
  const std::string& text = config.kv_advertise();
  const bool bracketed = text.front() == '[';
  const bool with_port = bracketed ? text.back() != ']' : std::ranges::count(text, ':') == 1;
  // Only a host, which may be an IPv6 address with or without brackets.
  const std::string host = bracketed && !with_port ? text.substr(1, text.size() - 2) : text;
  if (!with_port && !host.empty()) return HostPort{host, 0};
  StatusOr<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok()) return Annotate(parsed.status(), "kv_advertise");
  return parsed;
}

// The address at which others reach this process' HTTP port: the address it listens on or, when
// that is a wildcard, the advertised host or the host name.
StatusOr<std::string> ReachableHttp(const config::WorkerConfig& config,
                                    const std::string& listening) {
  BATON_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(listening));
  if (!IsWildcard(address.host)) return listening;
  address.host = HostName();
  if (!config.kv_advertise().empty()) {
    BATON_ASSIGN_OR_RETURN(const HostPort told, AdvertisedHostPort(config));
    address.host = told.host;
  }
  return address.ToString();
}

// Exits without a clean-up, because the thread that waits for the device cannot be stopped. Peers
// and routers recover as from a killed process.
[[noreturn]] void EndHung(const std::string& device, Duration limit) {
  kLog.Error(
      "a step has not ended for {:.1f} s (engine.step_limit_seconds): {} hangs; the process "
      "exits",
      ToSeconds(limit),
      device);
  FlushLog(kLogLimit);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

StatusOr<std::unique_ptr<Service>> WorkerService::Start(const config::WorkerConfig& config,
                                                        AppContext& context,
                                                        WorkerKind kind,
                                                        const AddRoles& add_roles) {
  if (kind != WorkerKind::kPrefill) {
    BATON_RETURN_IF_ERROR(
        context.security.CheckPort("kv_listen", config.kv_listen(), PortUsers::kPeers));
    BATON_RETURN_IF_ERROR(context.security.CheckPort(
        "the tcp transport at kv_listen", config.kv_listen(), PortUsers::kKvData));
  }
  std::unique_ptr<WorkerService> service(new WorkerService());
  BATON_RETURN_IF_ERROR(service->MakeExecutor(config, kind));
  WorkerOptions options;
  options.id = WorkerId(config.worker_id());
  if (config.worker_id().empty()) {
    options.id = WorkerId(fmt::format("{}-{}-{:08x}", Name(kind), HostName(), RandomId() >> 32));
  }
  options.model = service->model_->name();
  options.shape = service->model_->shape();
  options.tokenizer = service->model_->tokenizer();
  BATON_ASSIGN_OR_RETURN(options.admin_address, ReachableHttp(config, context.http.address()));
  options.program_version = Version();
  options.engine = EngineOptionsOf(config, kind);
  context.security.SecurePeers(options.limits);
  options.dma = service->model_->dma();
  options.routers.targets.assign(config.routers().begin(), config.routers().end());
  options.routers.resolve_every = FromSeconds(config.resolve_seconds());
  Executor* executor = service->local_.get();
  if (service->group_ != nullptr) executor = service->group_.get();
  BATON_ASSIGN_OR_RETURN(
      service->worker_,
      Worker::Create(std::move(options), *executor, context.metrics, context.clock));
  Worker& worker = *service->worker_;
  BATON_ASSIGN_OR_RETURN(service->addresses_, add_roles(config, worker));
  BATON_RETURN_IF_ERROR(worker.Start());
  kLog.Info("worker {}: {} blocks of [{}]",
            worker.identity().id,
            worker.identity().blocks,
            worker.identity().kv_layout);
  return std::unique_ptr<Service>(std::move(service));
}

Status WorkerService::MakeExecutor(const config::WorkerConfig& config, WorkerKind kind) {
  BATON_RETURN_IF_ERROR(CheckDevices(config));
  const GroupShape shape = GroupShapeOf(config);
  const CollectiveOptions collective = CollectiveOptionsOf(config);
  RankGroups groups;
  if (shape.ranks() > 1) {
    BATON_ASSIGN_OR_RETURN(ranks_, RankProcesses::Start({shape, collective, kRankStartLimit}));
    groups = ranks_->groups();
  }
  BATON_ASSIGN_OR_RETURN(model_, ModelHost::Open(RankModelOptions(config, kind, 0, groups)));
  ModelRunner* runner = &model_->runner();
  if (const Duration limit = StepLimitOf(config.engine()); limit > Duration::zero()) {
    watched_ = std::make_unique<WatchedRunner>(
        *runner, limit, [device = runner->device().name(), limit] { EndHung(device, limit); });
    runner = watched_.get();
  }
  RankPart part;
  if (ranks_ != nullptr) {
    part.shard = model_->kv_shard();
    part.agree_on_blocks = [&](int32_t blocks) {
      return ranks_->Agree(HelloOf(config, 0, *model_, blocks),
                           MaxGroupMessageBytes(config, model_->runner().traits()));
    };
  }
  BATON_ASSIGN_OR_RETURN(local_, LocalExecutor::Create(KvOptionsOf(config), *runner, part));
  if (ranks_ == nullptr) return OkStatus();
  BATON_ASSIGN_OR_RETURN(auto arenas, ranks_->TakeArenas(model_->dma()));
  group_ = std::make_unique<GroupExecutor>(
      *local_,
      ranks_->ring(),
      std::move(arenas),
      GroupExecutor::Options{.waiting = ranks_->waiting(), .limit = collective.limit});
  return OkStatus();
}

Status WorkerService::Failure() const {
  if (ranks_ != nullptr) BATON_RETURN_IF_ERROR(ranks_->status());
  return worker_->Failure();
}

WorkerService::~WorkerService() {
  if (worker_ != nullptr) worker_->Stop();
}

void WorkerService::Drain(Duration limit) {
  if (!worker_->Drain(limit)) {
    kLog.Warning("some requests or hand-offs did not end within {:.1f} s; they are dropped",
                 ToSeconds(limit));
  }
}

std::vector<LocalShard> LocalShardsOf(const Executor& executor) {
  std::vector<LocalShard> shards;
  for (const KvArena& arena : executor.kv_arenas()) {
    shards.push_back({arena.shard, arena.memory, static_cast<uint32_t>(executor.kv_blocks())});
  }
  return shards;
}

VerbsOptions VerbsOptionsOf(const config::VerbsConfig& config) {
  VerbsOptions options;
  options.devices = {config.devices().begin(), config.devices().end()};
  options.gid_index = config.gid_index();
  options.queue_pairs = static_cast<uint32_t>(config.queue_pairs());
  options.traffic_class = static_cast<uint8_t>(config.traffic_class());
  options.listen_port = static_cast<uint16_t>(config.port());
  return options;
}

StatusOr<KvTransferOptions> TransferOptionsOf(const config::WorkerConfig& config, Worker& worker) {
  BATON_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(config.kv_listen()));
  const WorkerInfo& self = worker.identity();
  const Executor& executor = worker.executor();
  KvTransferOptions options;
  options.worker = self.id;
  options.boot = self.boot;
  options.model_fingerprint = self.fingerprint;
  options.layout = executor.kv_layout();
  options.shards = LocalShardsOf(executor);
  options.dma = worker.dma();
  options.transport.names =
      TransportsOf(config.transfer(), executor.kv_arenas().front().memory->kind());
  options.transport.require_transport = config.transfer().require_transport();
  const auto tcp_port = static_cast<uint16_t>(config.transfer().tcp_port());
  options.transport.listen_address = HostPort{listen.host, tcp_port}.ToString();
  if (!config.kv_advertise().empty()) {
    BATON_ASSIGN_OR_RETURN(const HostPort told, AdvertisedHostPort(config));
    options.transport.advertise_host = told.host;
  }
  options.transport.proofs = worker.limits().proofs;
  options.transport.verbs = VerbsOptionsOf(config.transfer().verbs());
  options.times.lease = FromSeconds(config.transfer().progress_timeout_seconds());
  options.times.drain = FromSeconds(config.transfer().drain_timeout_seconds());
  options.checksums = config.transfer().checksums();
  return options;
}

StatusOr<std::string> AdvertisedAddress(const config::WorkerConfig& config,
                                        const std::string& listening) {
  BATON_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(listening));
  if (config.kv_advertise().empty()) {
    if (IsWildcard(address.host)) address.host = HostName();
    return address.ToString();
  }
  BATON_ASSIGN_OR_RETURN(const HostPort told, AdvertisedHostPort(config));
  return HostPort{told.host, told.port != 0 ? told.port : address.port}.ToString();
}

}  // namespace baton
