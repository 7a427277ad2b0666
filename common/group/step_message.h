#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "kernels/step_input.h"

// What the leader of a group tells its followers to do, as bytes in shared memory. Both sides are
// the same build on the same host (RankHello), so the numbers are stored as they are in memory.
namespace baton {

// One step, or copies of blocks (then `input` is empty).
struct StepMessage {
  // 1 for the first message of a group, then ascending: a rank that lost or repeated a message
  // notices it.
  uint64_t number = 0;
  StepInput input;
  std::span<const BlockCopy> copies;
};

// The bytes that EncodeStep writes.
size_t StepMessageBytes(const StepInput& input, std::span<const BlockCopy> copies);

// The most bytes of a message of a step with at most `rows` tokens and logit rows, `sequences`
// sequences of at most `blocks` blocks each, or of at most `blocks` copies.
size_t MaxStepMessageBytes(int64_t rows, int64_t sequences, int64_t blocks);

// Writes `message` to the start of `to`, which is aligned to 8 bytes and has at least
// StepMessageBytes.
void EncodeStep(const StepMessage& message, std::span<std::byte> to);

// The message in `bytes`, which is aligned to 8 bytes. The spans of the result point into `bytes`.
// Internal when the lengths or the digest do not match: a fault of this program or of the memory.
StatusOr<StepMessage> DecodeStep(std::span<const std::byte> bytes);

}  // namespace baton
