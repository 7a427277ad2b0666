#include "decode_worker/decode_service.h"

#include <map>
#include <utility>

#include "common/worker/transfer_config_wire.h"
#include "common/worker/worker_service.h"
#include "decode_worker/decode_role.h"
#include "prefill_worker/prefill_service.h"

namespace baton {

StatusOr<std::string> AddDecodeRole(const config::WorkerConfig& config, Worker& worker) {
  BATON_ASSIGN_OR_RETURN(KvTransferOptions transfer, TransferOptionsOf(config, worker));
  DecodeOptions options;
  options.listen = config.kv_listen();
  options.limits = worker.limits();
  options.receive_rate_while_computing =
      ReceiveRateWhileComputing(config, worker.executor().kv_arenas().front().memory->kind());
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<DecodeRole> role,
                         DecodeRole::Create(worker, std::move(transfer), options));
  BATON_ASSIGN_OR_RETURN(std::string address, AdvertisedAddress(config, role->kv_address()));
  worker.SetRole(RequestKind::kDecode, std::move(role), address);
  return address;
}

StatusOr<std::unique_ptr<Service>> StartDecodeWorker(const config::WorkerConfig& config,
                                                     AppContext& context) {
  return WorkerService::Start(
      config,
      context,
      config.unified() ? WorkerKind::kUnified : WorkerKind::kDecode,
      [](const config::WorkerConfig& c,
         Worker& worker) -> StatusOr<std::map<std::string, std::string>> {
        BATON_ASSIGN_OR_RETURN(std::string kv_address, AddDecodeRole(c, worker));
        if (c.unified()) BATON_RETURN_IF_ERROR(AddPrefillRole(c, worker));
        return std::map<std::string, std::string>{{"kv", std::move(kv_address)}};
      });
}

}  // namespace baton
