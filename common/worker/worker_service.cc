#include "common/worker/worker_service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <utility>

#include "common/app/rpc_limits.h"
#include "common/app/version.h"
#include "common/base/hash.h"
#include "common/base/host_port.h"
#include "common/cluster/member_id.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "common/log/log.h"
#include "common/model/tokenizer_source.h"
#include "common/worker/rank_config_wire.h"
#include "common/worker/transfer_config_wire.h"
#include "kvtransfer/group/group_data_plane.h"

namespace baton {
namespace {

constexpr Duration kLogLimit = std::chrono::seconds(1);

const Logger kLog("worker");
const Logger kTransferLog("transfer");

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
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
  if (kind == WorkerKind::kPrefill) {
    if (config.unified()) {
      return InvalidArgument(
          "unified is true, but this is baton-prefill; start a unified worker with baton-decode");
    }
  } else {
    BATON_RETURN_IF_ERROR(
        context.security.CheckPort("kv_listen", config.kv_listen(), PortUsers::kPeers));
    BATON_RETURN_IF_ERROR(context.security.CheckPort(
        "the tcp transport at kv_listen", config.kv_listen(), PortUsers::kKvData));
  }
  BATON_RETURN_IF_ERROR(CheckMemberId("worker_id", config.worker_id()));
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
  options.weights = service->ranks_ == nullptr ? service->model_->weights_hash()
                                               : service->ranks_->weights_hash();
  BATON_ASSIGN_OR_RETURN(options.admin_address, ReachableHttp(config, context.http.address()));
  options.program_version = Version();
  options.deterministic = IsDeterministic(config.engine(), kind);
  options.engine = EngineOptionsOf(config, kind);
  options.limits = RpcLimitsOf(config.process());
  context.security.SecurePeers(options.limits);
  options.dma = service->model_->dma();
  options.shard_port = service->shard_port_.get();
  service->MakeGrammars(config);
  options.grammars = service->grammars_.get();
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
  const GroupShape shape = GroupShapeOf(config);
  const CollectiveOptions collective = CollectiveOptionsOf(config);
  RankGroups groups;
  std::vector<int> hosts;
  if (shape.ranks() > 1) {
    BATON_RETURN_IF_ERROR(CheckDeviceCount(config));
    BATON_ASSIGN_OR_RETURN(ranks_, RankProcesses::Start({shape, collective, kRankStartLimit}));
    groups = ranks_->groups();
    hosts = ranks_->first_on_host();
  }
  BATON_RETURN_IF_ERROR(CheckDevices(config, hosts));
  BATON_ASSIGN_OR_RETURN(model_, ModelHost::Open(RankModelOptions(config, kind, 0, groups, hosts)));
  if (const Duration limit = StepLimitOf(config.engine()); limit > Duration::zero()) {
    watch_ = std::make_unique<StepWatch>(
        limit, [device = model_->device_name(), limit] { EndHung(device, limit); });
  }
  DecoderExecutor::Options local = {.kv = KvOptionsOf(config), .watch = watch_.get()};
  if (ranks_ != nullptr) {
    local.agree_on_blocks = [&](int32_t blocks) {
      return ranks_->Agree(HelloOf(config, 0, *model_, blocks),
                           MaxGroupMessageBytes(config, model_->traits()));
    };
  }
  BATON_ASSIGN_OR_RETURN(local_, model_->MakeExecutor(std::move(local)));
  if (ranks_ == nullptr) return OkStatus();
  BATON_ASSIGN_OR_RETURN(auto arenas, ranks_->TakeArenas(model_->dma()));
  GroupExecutor::Options options = {.waiting = ranks_->waiting(), .limit = collective.limit};
  if (RemoteRanks* const remote = ranks_->remote(); remote != nullptr) {
    shard_port_ = std::make_unique<RankShardPort>(*remote);
    options.forward = [remote](std::span<const std::byte> message) {
      return remote->Forward(message);
    };
  }
  group_ = std::make_unique<GroupExecutor>(*local_, ranks_->ring(), std::move(arenas), options);
  return OkStatus();
}

// A model without a tokenizer can be served, but its output cannot be constrained.
void WorkerService::MakeGrammars(const config::WorkerConfig& config) {
  const auto make = [&]() -> StatusOr<std::unique_ptr<GrammarCompiler>> {
    BATON_ASSIGN_OR_RETURN(TokenizerSpec spec, LoadTokenizerSpec(config.model().path()));
    BATON_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Create(std::move(spec)));
    return MakeGrammarCompiler(
        tokenizer,
        {.vocabulary = model_->traits().vocabulary,
         .cache_bytes = static_cast<size_t>(config.engine().grammar_cache_mib()) << 20,
         .max_waiting = static_cast<size_t>(config.engine().max_waiting_grammars())});
  };
  StatusOr<std::unique_ptr<GrammarCompiler>> made = make();
  if (made.ok()) {
    grammars_ = *std::move(made);
  } else {
    kLog.Info("output cannot be constrained: {}", Message(made.status()));
  }
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

StatusOr<KvTransferOptions> TransferOptionsOf(const config::WorkerConfig& config, Worker& worker) {
  const WorkerInfo& self = worker.identity();
  const Executor& executor = worker.executor();
  BATON_ASSIGN_OR_RETURN(KvTransferOptions options,
                         TransferSettingsOf(config,
                                            executor.kv_arenas().front().memory->kind(),
                                            worker.dma(),
                                            worker.limits().proofs));
  options.log = [](std::string_view line) { kTransferLog.Warning("{}", line); };
  options.log_info = [](std::string_view line) { kTransferLog.Info("{}", line); };
  options.worker = self.id;
  options.boot = self.boot;
  options.model_fingerprint = self.fingerprint;
  options.weights = self.weights;
  options.layout = executor.kv_layout();
  options.shards = LocalShardsOf(executor);
  if (ShardPort* const port = worker.shard_port(); port != nullptr) {
    options.make_data_plane = [port](const KvTransferOptions& own,
                                     bool listen) -> StatusOr<std::unique_ptr<DataPlane>> {
      return GroupDataPlane::Create(own, listen, *port);
    };
  }
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
