#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/kvcache/layout.h"

// The messages with which the leader and the followers of a group start, besides RankHello. Both
// sides are the same build.
namespace baton {

// Leader → follower: the follower's rank, with the group's memory.
std::string RankMessage(int rank);
StatusOr<int> RankIn(const std::string& text);

// Leader → follower: the KV blocks of every rank, with the ring of step messages.
std::string BlocksMessage(int32_t blocks);
StatusOr<int32_t> BlocksIn(const std::string& text);

// Follower → leader: the part of the KV that its arena holds, with the arena's memory: a descriptor
// of host memory, or `exported`, the Dma::Export of a GPU's memory.
std::string ShardMessage(const KvShard& shard, std::string_view exported);
StatusOr<KvShard> ShardIn(const std::string& text);
// InvalidArgument when `text` has no export that ShardMessage wrote; empty for host memory.
StatusOr<std::string> ExportIn(const std::string& text);

// Follower → leader: why the follower ends.
std::string ErrorMessage(const Status& status);
// The error in `text`; OK when it is another message.
Status ErrorIn(const std::string& text);

}  // namespace baton
