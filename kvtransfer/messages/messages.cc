#include "kvtransfer/messages/messages.h"

#include <array>

namespace baton {
namespace {

Status CheckShards(const Hello& hello) {
  if (hello.shards.empty()) {
    return InvalidArgument("worker {} announces no KV shard; it needs at least one", hello.worker);
  }
  for (const KvShardInfo& info : hello.shards) {
    BATON_RETURN_IF_ERROR(
        Annotate(ValidateShard(hello.layout, info.shard), fmt::format("worker {}", hello.worker)));
    BATON_RETURN_IF_ERROR(
        Annotate(CheckStates(hello.layout, info.shard), fmt::format("worker {}", hello.worker)));
    if (info.block_count == 0) {
      return InvalidArgument("worker {} announces a KV shard of 0 blocks", hello.worker);
    }
  }
  return OkStatus();
}

}  // namespace

std::vector<KvShard> ShardsOf(const Hello& hello) {
  std::vector<KvShard> shards;
  shards.reserve(hello.shards.size());
  for (const KvShardInfo& info : hello.shards) shards.push_back(info.shard);
  return shards;
}

uint32_t StateBlocksOf(const Hello& hello) {
  return static_cast<uint32_t>(StateBlocks(hello.layout, ShardsOf(hello)));
}

OwedBlocks OwedBlocksOf(const KvLayout& layout, uint32_t prompt_tokens) {
  OwedBlocks owed = {.count = PromptBlocks(prompt_tokens, layout.block_tokens),
                     .first = {},
                     .state = layout.has_state()};
  for (const KvCacheGroup& group : layout.groups) {
    const int32_t kept = FirstBlockKept(prompt_tokens, group.window(), layout.block_tokens);
    owed.first.push_back(static_cast<uint32_t>(kept));
  }
  return owed;
}

Status CheckOwed(const Grant& grant, const OwedBlocks& owed, uint32_t state_blocks) {
  if (grant.cached_blocks > owed.count) {
    return InvalidArgument(
        "GRANT has {} cached blocks for a prompt of {}", grant.cached_blocks, owed.count);
  }
  if (grant.blocks.size() != owed.first.size()) {
    return InvalidArgument("GRANT has blocks of {} cache groups; the layout has {}",
                           grant.blocks.size(),
                           owed.first.size());
  }
  for (uint32_t group = 0; group < grant.blocks.size(); ++group) {
    uint32_t count = owed.count - owed.from(group, grant.cached_blocks);
    if (owed.is_state(group)) count *= state_blocks;
    if (grant.blocks[group].size() == count) continue;
    return InvalidArgument("GRANT has {} blocks of {} {} besides {} cached ones; {} are owed",
                           grant.blocks[group].size(),
                           owed.is_state(group) ? "the state in cache group" : "cache group",
                           group,
                           grant.cached_blocks,
                           count);
  }
  return OkStatus();
}

Status CheckStates(const KvLayout& layout, const KvShard& shard) {
  if (!layout.has_state()) return OkStatus();
  if (layout.block_groups() == 0) {
    return InvalidArgument(
        "every layer has a state; a hand-off needs a layer that has KV of every token");
  }
  return ValidateShard(layout, shard);
}

uint32_t BlocksIn(const Grant& grant) {
  size_t count = 0;
  for (const std::vector<BlockId>& blocks : grant.blocks) count += blocks.size();
  return static_cast<uint32_t>(count);
}

std::string_view Name(const ControlMessage& message) {
  static constexpr std::array<std::string_view, std::variant_size_v<ControlMessage>> kNames = {
      "HELLO",
      "OFFER",
      "GRANT",
      "REFUSE",
      "SEAL",
      "RESEND",
      "ACK",
      "RENEW",
      "FAIL",
      "ABORT",
      "DRAIN_ACK",
      "BYE"};
  return kNames[message.index()];
}

Status CheckCompatible(const Hello& ours, const Hello& theirs) {
  const auto differ = [&](std::string_view what, const auto& our_value, const auto& their_value) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "{} differs: worker {} has {}, worker {} has {}",
                      what,
                      ours.worker,
                      our_value,
                      theirs.worker,
                      their_value);
  };
  if (ours.version != theirs.version) {
    return differ("KV protocol version", ours.version, theirs.version);
  }
  if (ours.model_fingerprint != theirs.model_fingerprint) {
    return differ("model fingerprint", ours.model_fingerprint, theirs.model_fingerprint);
  }
  if (ours.weights != theirs.weights) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "weights differ: those of worker {} have the hash {}, those of worker {} the "
                      "hash {}; give both workers the same weight files",
                      ours.worker,
                      ours.weights,
                      theirs.worker,
                      theirs.weights);
  }
  if (ours.layout != theirs.layout) {
    return differ("KV layout", ours.layout.ToString(), theirs.layout.ToString());
  }
  return CheckShards(theirs);
}

}  // namespace baton
