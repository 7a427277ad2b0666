#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "kvtransfer/transport.h"

// The messages between the two ends of a channel of cuda_ipc, verbs or nccl, little-endian. A
// FrameSocket carries them. The payload never takes this way: the sender's Copier moves it into the
// receiver's memory directly, or a communicator moves it (nccl).
namespace baton {

enum class SidebandType : uint16_t {
  // From the sender.
  // op: the region to write; key: the worker, TransportOptions::boot; text: Copier::Greeting
  kHello = 1,
  kAsk = 2,  // key: asks for the right to write through that window
  // key, op, tag, granule, bytes, ranges: this operation's copy into these ranges has ended or,
  // where its mark tells when it has landed, has begun; code: its mark (Copier::Copy)
  kLanded = 3,
  // key: no copy through that window is under way but those whose kLanded came before, and none
  // follows before the next kWindow for it.
  kDrained = 4,
  kBye = 5,   // no copy is under way, and none will follow
  kNote = 6,  // key, text: Channel::PostNote
  // key, op, tag, granule, bytes, ranges: the payload of this operation, for these ranges, is the
  // next one that the channel's communicator sends (nccl/)
  kSend = 7,
  // From the receiver.
  kWelcome = 16,  // text: the access to the region's memory, as returned by RemoteAccess::Open
  // key, code; `bytes` is the number of ranges of the window. Ranges that do not fit into one frame
  // follow in further frames. Answers kAsk, or comes when the window of a hand-off of the sender's
  // worker opens.
  kWindow = 17,
  kClose = 18,  // key: start no more copies; answered by kDrained
  kAck = 19,    // op, code: the operation counts, or the reason why not
};

struct SidebandHeader {
  uint32_t magic = 0x494b5642;  // "BVKI"
  uint16_t version = 5;
  SidebandType type = SidebandType::kHello;
  uint32_t count = 0;  // number of ranges, or bytes of text
  uint32_t code = 0;   // a StatusCode; of kLanded a mark
  uint64_t key = 0;
  uint64_t op = 0;
  uint64_t tag = 0;
  uint64_t granule = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(SidebandHeader) == 56);

constexpr uint32_t kMaxSidebandRecords = 4096;  // in one frame
constexpr size_t kMaxSidebandNoteBytes = size_t{96} << 10;
constexpr size_t kMaxSidebandFrameBytes = sizeof(SidebandHeader) + kMaxSidebandNoteBytes;
static_assert(kMaxSidebandRecords * sizeof(ByteRange) <= kMaxSidebandNoteBytes);
constexpr uint64_t kMaxWindowRanges = uint64_t{1} << 20;

struct SidebandFrame {
  SidebandHeader header;
  // Of kWindow; of kLanded and kSend: where the payload goes, in its order.
  std::vector<ByteRange> ranges;
  std::string text;  // of kHello, kWelcome, kNote
};

std::string EncodeSidebandFrame(const SidebandFrame& frame);
// InvalidArgument for bytes that are not a frame: magic, version, type, counts.
StatusOr<SidebandFrame> ParseSidebandFrame(std::span<const std::byte> bytes);

// A frame in a stream of bytes follows its length in bytes, a little-endian 32-bit number.
std::string EncodeStreamFrame(const SidebandFrame& frame);
// The frame that begins at `offset`, which moves behind the frame; nothing if the frame is not
// complete. InvalidArgument as for ParseSidebandFrame, and for a length that no frame has.
StatusOr<std::optional<SidebandFrame>> TakeStreamFrame(std::string_view stream, size_t& offset);

}  // namespace baton
