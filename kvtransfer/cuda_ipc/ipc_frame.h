#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kvtransfer/transport.h"

// The messages between the two ends of a cuda_ipc channel: one frame per message of a local
// SOCK_SEQPACKET socket, little-endian (both ends are on one machine). The payload never takes this
// way: the sender copies it into the receiver's memory directly.
namespace baton {

enum class IpcType : uint16_t {
  // From the sender.
  kHello = 1,   // op: the region to write
  kAsk = 2,     // key: asks for the right to write through that window
  kLanded = 3,  // key, op, tag, granule, bytes, runs: these copies have ended
  // key: no copy through that window is under way, and none follows before the next kAsk for it.
  kDrained = 4,
  kBye = 5,   // no copy is under way, and none will follow
  kNote = 6,  // key, text: Channel::PostNote
  // From the receiver.
  kWelcome = 16,  // text: the region's memory, as returned by Dma::Export
  // key, code; `bytes` is the number of ranges of the window. Ranges that do not fit into one frame
  // follow in further frames.
  kWindow = 17,
  kClose = 18,  // key: start no more copies; answered by kDrained
  kAck = 19,    // op, code: the operation counts, or the reason why not
};

struct IpcHeader {
  uint32_t magic = 0x494b5642;  // "BVKI"
  uint16_t version = 1;
  IpcType type = IpcType::kHello;
  uint32_t count = 0;  // number of runs or ranges, or bytes of text
  uint32_t code = 0;   // a StatusCode
  uint64_t key = 0;
  uint64_t op = 0;
  uint64_t tag = 0;
  uint64_t granule = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(IpcHeader) == 56);

constexpr uint32_t kMaxIpcRecords = 4096;  // in one frame
constexpr size_t kMaxIpcFrameBytes = sizeof(IpcHeader) + kMaxIpcRecords * sizeof(WriteRun);
constexpr size_t kMaxIpcNoteBytes = kMaxIpcFrameBytes - sizeof(IpcHeader);
constexpr uint64_t kMaxWindowRanges = uint64_t{1} << 20;

struct IpcFrame {
  IpcHeader header;
  std::vector<WriteRun> runs;     // of kLanded
  std::vector<ByteRange> ranges;  // of kWindow
  std::string text;               // of kWelcome, kNote
};

std::string EncodeIpcFrame(const IpcFrame& frame);
// InvalidArgument for bytes that are not a frame: magic, version, type, counts.
StatusOr<IpcFrame> ParseIpcFrame(std::span<const std::byte> bytes);

}  // namespace baton
