#include "tests/unit/engine/handoff_driver.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

namespace baton {

void HandoffDriver::Start(const Request& request) {
  Request part = request;
  part.kind = RequestKind::kDecode;
  decode_.Submit(part);
  part.kind = RequestKind::kPrefill;
  prefill_.Submit(part);
  sessions_[{request.id, request.epoch}] = {.tokens = static_cast<int32_t>(request.tokens.size())};
}

void HandoffDriver::Cancel(const Request& request) {
  decode_.engine().Cancel(request.id, request.epoch);
  prefill_.engine().Cancel(request.id, request.epoch);
}

bool HandoffDriver::Pump() {
  bool open = false;
  for (auto& [key, session] : sessions_) {
    Advance(key, session);
    open |= !session.released_prefill || !session.released_decode;
  }
  return open;
}

void HandoffDriver::Advance(const RequestKey& key, Session& session) {
  RequestLog& from = prefill_.listener().log(key);
  RequestLog& to = decode_.listener().log(key);
  if (!session.activated && !session.aborted && (from.failure || to.failure) && Now()) {
    session.aborted = true;
    Release(key, session);  // the engines may still compute
    prefill_.engine().Cancel(key.first, key.second);
    decode_.engine().Cancel(key.first, key.second);
  }
  if (!session.aborted && !session.activated) CopyReady(key, session);
  Release(key, session);
}

void HandoffDriver::CopyReady(const RequestKey& key, Session& session) {
  const RequestLog& from = prefill_.listener().log(key);
  const RequestLog& to = decode_.listener().log(key);
  if (!to.reservation) return;
  const KvLayout& layout = prefill_.executor().kv_layout();
  const auto groups = static_cast<size_t>(layout.block_groups());
  const size_t bytes = ShardBlockBytes(layout, WholeModel(layout));
  const std::byte* source = prefill_.executor().kv_arenas().front().memory->data();
  std::byte* target = decode_.executor().kv_arenas().front().memory->data();
  while (session.copied < from.announced.size() && Now()) {
    const size_t index = session.copied++;
    const auto block = static_cast<int32_t>(index / groups);
    const KvWindow window = layout.groups[index % groups].window();
    const int32_t owed = FirstBlockKept(session.tokens, window, layout.block_tokens);
    if (block < std::max(owed, to.reservation->cached_blocks)) continue;
    std::memcpy(target + to.reservation->blocks[index].value() * bytes,
                source + from.announced[index].value() * bytes,
                bytes);
    ++blocks_copied_;
  }
  if (!from.all_announced || session.copied < from.announced.size() || !from.ended()) return;
  EXPECT_EQ(from.announced.size(), to.reservation->blocks.size());
  const auto all = static_cast<size_t>(to.reservation->cached_blocks) * groups;
  for (size_t i = 0; i < from.state.size() && all < from.announced.size(); ++i) {
    std::memcpy(target + to.reservation->state[i].value() * bytes,
                source + from.state[i].value() * bytes,
                bytes);
  }
  std::vector<SampledToken> first;
  for (const auto& [sample, outputs] : from.samples) first.push_back(outputs.front().token);
  decode_.engine().Activate(key.first, key.second, std::move(first));
  session.activated = true;
}

void HandoffDriver::Release(const RequestKey& key, Session& session) {
  if (!session.activated && !session.aborted) return;
  if (!session.released_prefill && Now()) {
    session.released_prefill = true;
    prefill_.engine().ReleaseKv(key.first, key.second);
  }
  if (!session.released_decode && Now()) {
    session.released_decode = true;
    decode_.engine().ReleaseKv(key.first, key.second);
  }
}

bool HandoffDriver::RunUntilIdle(int most) {
  for (int i = 0; i < most; ++i) {
    bool worked = prefill_.Step("prefill");
    worked |= decode_.Step("decode");
    worked |= Pump();
    if (!worked) return true;
    if (::testing::Test::HasFailure()) return false;
  }
  return false;
}

std::vector<TokenId> HandoffDriver::Tokens(const Request& request, int32_t sample) {
  std::vector<TokenId> tokens = prefill_.log(request).Tokens(sample);
  const std::vector<TokenId> rest = decode_.log(request).Tokens(sample);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

bool HandoffDriver::Ended(const Request& request) {
  return prefill_.log(request).ended() && decode_.log(request).ended();
}

}  // namespace baton
