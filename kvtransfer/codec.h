#pragma once

#include <string>
#include <string_view>

#include "kvtransfer/messages.h"

namespace baton {

// Bounds on what Decode accepts: far above what real models need, and small enough that a hostile
// message cannot take much memory.
constexpr uint32_t kMaxPromptTokens = 1u << 24;
constexpr uint32_t kMaxPromptBlocks = 1u << 18;
constexpr size_t kMaxShards = 256;
constexpr size_t kMaxEndpoints = 8;
constexpr size_t kMaxDescriptorBytes = 512;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxStatusBytes = 4096;
constexpr size_t kMaxPayloadBytes = 1u << 20;

// The bytes of a message: little-endian fixed-width integers in the order of the fields of
// messages.h, strings and lists after a 32-bit count, the message's kind as one byte.
std::string EncodeEnvelope(const Envelope& envelope);

// The reverse. InvalidArgument naming the message and the field for anything truncated, over its
// bound, out of its range, or followed by more bytes.
StatusOr<Envelope> DecodeEnvelope(std::string_view bytes);

}  // namespace baton
