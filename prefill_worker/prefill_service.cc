#include "prefill_worker/prefill_service.h"

#include <map>
#include <string>
#include <utility>

#include "common/worker/worker_service.h"
#include "prefill_worker/prefill_role.h"

namespace baton {

Status AddPrefillRole(const config::WorkerConfig& config, Worker& worker) {
  BATON_ASSIGN_OR_RETURN(KvTransferOptions transfer, TransferOptionsOf(config, worker));
  PrefillOptions options;
  options.limits = worker.limits();
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<PrefillRole> role,
                         PrefillRole::Create(worker, std::move(transfer), options));
  worker.SetRole(RequestKind::kPrefill, std::move(role), "");
  return OkStatus();
}

StatusOr<std::unique_ptr<Service>> StartPrefillWorker(const config::WorkerConfig& config,
                                                      AppContext& context) {
  return WorkerService::Start(config,
                              context,
                              WorkerKind::kPrefill,
                              [](const config::WorkerConfig& c,
                                 Worker& worker) -> StatusOr<std::map<std::string, std::string>> {
                                BATON_RETURN_IF_ERROR(AddPrefillRole(c, worker));
                                return std::map<std::string, std::string>();
                              });
}

}  // namespace baton
