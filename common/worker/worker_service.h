#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/app/service.h"
#include "common/engine/decoder_executor.h"
#include "common/engine/step_watch.h"
#include "common/grammar/grammar.h"
#include "common/worker/config_wire.h"
#include "common/worker/model_host.h"
#include "common/worker/rank_processes.h"
#include "common/worker/rank_shards.h"
#include "common/worker/worker.h"
#include "kvtransfer/options.h"
#include "proto/config.pb.h"

namespace baton {

// A worker as a process: the model, the Worker that runs it, and the roles that its binary adds.
// The methods are those of Service.
class WorkerService final : public Service {
 public:
  // Adds the roles to the worker. Returns the addresses that the roles opened, by name.
  using AddRoles = std::function<StatusOr<std::map<std::string, std::string>>(
      const config::WorkerConfig& config, Worker& worker)>;

  // Loads the model and starts the worker. `kind` decides defaults and is part of a generated
  // worker id. Errors: bad configuration, model files, memory, ports.
  static StatusOr<std::unique_ptr<Service>> Start(const config::WorkerConfig& config,
                                                  AppContext& context,
                                                  WorkerKind kind,
                                                  const AddRoles& add_roles);
  ~WorkerService() override;

  Status Ready() const override { return worker_->Ready(); }
  Status Failure() const override;
  bool Finished() const override { return worker_->Finished(); }
  std::map<std::string, std::string> addresses() const override { return addresses_; }
  void Drain(Duration limit) override;
  void Stop() override { worker_->Stop(); }

 private:
  WorkerService() = default;
  // Makes the model and the executor: of the whole model, or of rank 0 and the other ranks.
  Status MakeExecutor(const config::WorkerConfig& config, WorkerKind kind);
  void MakeGrammars(const config::WorkerConfig& config);

  std::unique_ptr<RankProcesses> ranks_;       // null when the worker has one rank
  std::unique_ptr<RankShardPort> shard_port_;  // null when all ranks are on this host
  std::unique_ptr<ModelHost> model_;
  std::unique_ptr<StepWatch> watch_;           // null when steps have no time limit
  std::unique_ptr<DecoderExecutor> local_;     // of rank 0
  std::unique_ptr<GroupExecutor> group_;       // null when the worker has one rank
  std::unique_ptr<GrammarCompiler> grammars_;  // null when output cannot be constrained
  std::unique_ptr<Worker> worker_;
  std::map<std::string, std::string> addresses_;
};

// The executor's arenas, as a KvSender or KvReceiver takes them.
std::vector<LocalShard> LocalShardsOf(const Executor& executor);

// The options of the KvSender or KvReceiver of `worker`, from the configuration.
StatusOr<KvTransferOptions> TransferOptionsOf(const config::WorkerConfig& config, Worker& worker);

// The KvControl address that other workers are given. `listening`: the address it listens on.
StatusOr<std::string> AdvertisedAddress(const config::WorkerConfig& config,
                                        const std::string& listening);

}  // namespace baton
