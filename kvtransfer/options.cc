#include "kvtransfer/options.h"

namespace baton {

Status ValidateOptions(const KvTransferOptions& options) {
  BATON_RETURN_IF_ERROR(options.layout.Validate());
  if (options.worker.value().empty()) return InvalidArgument("KV transfer: the worker id is empty");
  if (options.shards.empty()) return InvalidArgument("KV transfer: there is no local shard");
  for (const LocalShard& shard : options.shards) {
    BATON_RETURN_IF_ERROR(ValidateShard(options.layout, shard.shard));
    const size_t block_bytes = ShardBlockBytes(options.layout, shard.shard);
    if (shard.arena == nullptr && options.make_data_plane) continue;
    const size_t arena = shard.arena == nullptr ? 0 : shard.arena->size();
    if (shard.block_count == 0 || arena / block_bytes < shard.block_count) {
      return InvalidArgument(
          "KV transfer: an arena of {} bytes does not hold {} blocks of {} bytes",
          arena,
          shard.block_count,
          block_bytes);
    }
  }
  const SessionTimes& times = options.times;
  if (times.renew <= Duration{} || times.lease < 2 * times.renew || times.drain <= Duration{} ||
      times.fence <= Duration{}) {
    return InvalidArgument(
        "KV transfer times: renew {} ms, lease {} ms, drain {} ms, fence {} ms; all must be "
        "positive, and the lease at least twice renew",
        ToMillis(times.renew),
        ToMillis(times.lease),
        ToMillis(times.drain),
        ToMillis(times.fence));
  }
  if (options.transport.authenticate_frames && options.transport.proofs == nullptr) {
    return InvalidArgument(
        "transfer.tcp_authenticate_frames needs security.cluster_secret_file, from which the keys "
        "are made");
  }
  if (options.max_sessions == 0) {
    return InvalidArgument("KV transfer: max_sessions must be positive");
  }
  return OkStatus();
}

}  // namespace baton
