#include "tests/conformance/shard_hosts.h"

#include <utility>

#include "kvtransfer/group/group_data_plane.h"

namespace baton {

ShardHosts::ShardHosts(const KvTransferOptions& whole) : whole_(whole) {
  for (uint32_t shard = 1; shard < whole.shards.size(); ++shard) {
    shards_.push_back(shard);
    for (const PlaneRole plane : {PlaneRole::kSender, PlaneRole::kReceiver}) {
      servers_[static_cast<size_t>(plane)].push_back(std::make_unique<ShardServer>(
          ShardServer::Options{.transfer = whole,
                               .shard = shard,
                               .arena = whole.shards[shard].arena,
                               .plane = plane,
                               .send = [this, shard, plane](std::string_view message) {
                                 Deliver(shard, plane, message);
                               }}));
    }
  }
}

KvTransferOptions ShardHosts::LeadingOptions() {
  KvTransferOptions options = whole_;
  for (const uint32_t shard : shards_) options.shards[shard].arena = nullptr;
  options.make_data_plane = [this](const KvTransferOptions& own,
                                   bool listen) -> StatusOr<std::unique_ptr<DataPlane>> {
    return GroupDataPlane::Create(own, listen, *this);
  };
  return options;
}

Status ShardHosts::Send(uint32_t shard, PlaneRole plane, std::string_view message) {
  const std::lock_guard lock(commands_);
  servers_[static_cast<size_t>(plane)][shard - 1]->OnMessage(message);
  return OkStatus();
}

void ShardHosts::Listen(PlaneRole plane, Listener listener) {
  const std::lock_guard lock(mutex_);
  listeners_[static_cast<size_t>(plane)] = std::move(listener);
}

void ShardHosts::Deliver(uint32_t shard, PlaneRole plane, std::string_view message) {
  const std::lock_guard lock(mutex_);
  const Listener& listener = listeners_[static_cast<size_t>(plane)];
  if (listener) listener(shard, message);
}

}  // namespace baton
