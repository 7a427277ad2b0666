// Part of the conformance suite: a sender takes writes back while its receiver is not polled.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/conformance/transport_conformance.h"

namespace baton {

void TransportConformance::TakeBack(const std::vector<std::pair<OpId, ByteRange>>& ops) {
  for (const auto& [op, source] : ops) channel_->RequestAbort(op);
  while (DriveSender()) {
  }
  for (const auto& [op, source] : ops) {
    if (ended_.contains(op)) from_->Put(source.offset, std::vector(source.bytes, std::byte{0x55}));
  }
  DriveUntilEnded(ops.size());
  Settle();
}

// A receiver may be stopped for any time between the sender's post and its own next poll.
TEST_P(TransportConformance, WhatWasTakenBackBeforeTheReceiverLookedIsNotReadAnyMore) {
  OpenWindow(0, kArenaBytes);
  std::vector<std::pair<OpId, ByteRange>> ops;
  for (uint64_t i = 0; i < 16; ++i) {
    ops.emplace_back(Write(i << 16, i << 16, 1 << 16, i), ByteRange{i << 16, 1 << 16});
  }
  for (int i = 0; i < 4; ++i) DriveSender();
  TakeBack(ops);
  ExpectOriginals();
}

// The write is so large that a receiver which copies needs several polls for it.
TEST_P(TransportConformance, WhatWasTakenBackWhileTheReceiverReadItDoesNotArriveChanged) {
  OpenWindow(0, kArenaBytes);
  const uint64_t bytes = std::min<uint64_t>(kArenaBytes, sender_->caps().max_op_bytes);
  const OpId op = Write(0, 0, bytes);
  const auto begun = [&] { return Same(0, 0, 4096); };
  for (int turn = 0; turn < 100 && !begun() && arrived_.empty(); ++turn) {
    DriveSender();
    DriveReceiver();
  }
  TakeBack({{op, {0, bytes}}});
  for (const Arrival& arrival : arrived_) EXPECT_TRUE(Same(0, 0, arrival.bytes));
}

}  // namespace baton
