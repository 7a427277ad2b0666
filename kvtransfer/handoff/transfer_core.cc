#include "kvtransfer/handoff/transfer_core.h"

#include <utility>

#include "kvtransfer/data_plane/local_data_plane.h"

namespace baton {
namespace {

constexpr size_t kMaxPosted = size_t{1} << 16;
constexpr Duration kTick = std::chrono::milliseconds(20);
// The longest time from the last layer's KV to the first token: the attention of a long chunk, and
// little else.
constexpr Duration kLongestToSeal = std::chrono::milliseconds(10);

}  // namespace

Status TransferCore::Start(const std::string& thread_name,
                           bool listen,
                           EventLoop::Iteration iteration) {
  for (const LocalShard& shard : options_.shards) {
    BATON_RETURN_IF_ERROR(Annotate(CheckStates(options_.layout, shard.shard), "KV transfer"));
  }
  if (options_.make_data_plane) {
    BATON_ASSIGN_OR_RETURN(data_plane_, options_.make_data_plane(options_, listen));
  } else {
    BATON_ASSIGN_OR_RETURN(data_plane_, LocalDataPlane::Create(options_, listen));
  }
  hello_.worker = options_.worker;
  hello_.boot = options_.boot;
  hello_.model_fingerprint = options_.model_fingerprint;
  hello_.weights = options_.weights;
  hello_.layout = options_.layout;
  hello_.shards = data_plane_->shards();
  state_blocks_ = StateBlocksOf(hello_);
  BATON_ASSIGN_OR_RETURN(loop_, EventLoop::Create(kMaxPosted));
  for (const int fd : data_plane_->wait_fds()) BATON_RETURN_IF_ERROR(loop_->Watch(fd));
  loop_->Start(thread_name, std::move(iteration));
  return OkStatus();
}

void TransferCore::Stop() {
  if (loop_) loop_->Stop();
}

Status TransferCore::CheckBlocks(std::span<const BlockId> blocks) const {
  for (const KvShardInfo& shard : hello_.shards) {
    for (const BlockId block : blocks) {
      if (block.InArena(shard.block_count)) continue;
      return InvalidArgument(
          "block {} is outside a KV arena of {} blocks", block, shard.block_count);
    }
  }
  return OkStatus();
}

void TransferCore::Send(const WorkerId& peer, const SessionKey& key, ControlMessage message) {
  (void)streams_.Send(peer, {key.first, key.second, std::move(message)});
}

void TransferCore::Log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

bool TransferCore::Tick(Time now) {
  if (now < next_tick_) return false;
  next_tick_ = now + kTick;
  return true;
}

Duration TransferCore::AwaitSeal(Time now) {
  seal_due_ = now + kLongestToSeal;
  return kLongestToSeal;
}

void TransferCore::Publish(KvTransferStats stats) {
  std::lock_guard lock(stats_mutex_);
  published_ = std::move(stats);
}

KvTransferStats TransferCore::Stats() const {
  std::lock_guard lock(stats_mutex_);
  return published_;
}

}  // namespace baton
