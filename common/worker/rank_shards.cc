#include "common/worker/rank_shards.h"

#include <string>
#include <utility>

namespace baton {
namespace {

// A letter is one byte for the plane, and the message.
std::string LetterOf(PlaneRole plane, std::string_view message) {
  std::string letter(1, static_cast<char>(plane));
  letter += message;
  return letter;
}

// The plane of a letter; 2 or more for none.
size_t PlaneIn(std::string_view letter) {
  return letter.empty() ? 2 : static_cast<unsigned char>(letter.front());
}

}  // namespace

RankShardPort::RankShardPort(RemoteRanks& ranks) : ranks_(ranks) {
  for (const int rank : ranks.ranks()) shards_.push_back(static_cast<uint32_t>(rank));
  ranks_.ListenToShards([this](int rank, std::string_view letter) {
    const size_t plane = PlaneIn(letter);
    const std::lock_guard lock(mutex_);
    if (plane < listeners_.size() && listeners_[plane]) {
      listeners_[plane](static_cast<uint32_t>(rank), letter.substr(1));
    }
  });
}

RankShardPort::~RankShardPort() {
  ranks_.ListenToShards(nullptr);
}

Status RankShardPort::Send(uint32_t shard, PlaneRole plane, std::string_view message) {
  return ranks_.SendShard(static_cast<int>(shard), LetterOf(plane, message));
}

void RankShardPort::Listen(PlaneRole plane, Listener listener) {
  const std::lock_guard lock(mutex_);
  listeners_[static_cast<size_t>(plane)] = std::move(listener);
}

RankShardServers::RankShardServers(RemoteLeader& leader,
                                   const KvTransferOptions& options,
                                   uint32_t rank,
                                   const Buffer& arena)
    : leader_(leader) {
  for (const PlaneRole plane : {PlaneRole::kSender, PlaneRole::kReceiver}) {
    servers_[static_cast<size_t>(plane)] = std::make_unique<ShardServer>(
        ShardServer::Options{.transfer = options,
                             .shard = rank,
                             .arena = &arena,
                             .plane = plane,
                             .send = [this, plane](std::string_view message) {
                               (void)leader_.SendShard(LetterOf(plane, message));
                             }});
  }
  leader_.ListenToShards([this](std::string_view letter) {
    const size_t plane = PlaneIn(letter);
    if (plane < servers_.size()) servers_[plane]->OnMessage(letter.substr(1));
  });
}

RankShardServers::~RankShardServers() {
  leader_.ListenToShards(nullptr);
}

}  // namespace baton
