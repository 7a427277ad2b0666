#pragma once

#include <string>
#include <string_view>

#include "kvtransfer/messages/messages.h"

namespace baton {

// Limits of DecodeEnvelope: far above what real models need, and small enough that a hostile
// message cannot take much memory.
constexpr uint32_t kMaxPromptTokens = 1u << 24;
constexpr uint32_t kMaxPromptBlocks = 1u << 18;
constexpr size_t kMaxShards = 256;
constexpr size_t kMaxEndpoints = 8;
constexpr size_t kMaxDescriptorBytes = 512;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxStatusBytes = 4096;
constexpr size_t kMaxPayloadBytes = 1u << 20;

// Encodes a message: one byte for its kind, then session and epoch, then the fields of
// messages.h in their order. Integers are little-endian with a fixed width; strings and lists
// follow a 32-bit count.
std::string EncodeEnvelope(const Envelope& envelope);

// Decodes a message. InvalidArgument that names the message and the field if bytes are truncated,
// over a limit, out of range, or left over.
StatusOr<Envelope> DecodeEnvelope(std::string_view bytes);

}  // namespace baton
