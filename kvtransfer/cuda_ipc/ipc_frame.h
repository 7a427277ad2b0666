#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kvtransfer/transport.h"

// What the two ends of a cuda_ipc channel say to each other: one frame a message of a local
// SOCK_SEQPACKET socket, little-endian (both are on one machine). The payload never goes this way:
// the sender puts it into the receiver's memory by itself.
namespace baton {

enum class IpcType : uint16_t {
  // From the sender.
  kHello = 1,    // op: the region that is to be written
  kAsk = 2,      // key: may that window be written?
  kLanded = 3,   // key, op, tag, granule, bytes, runs: these copies have ended
  kDrained = 4,  // key: no copy through that window is under way, nor comes before it is asked for
  kBye = 5,      // no copy at all is under way, and none will be
  kNote = 6,     // key, text: Channel::PostNote
  // From the receiver.
  kWelcome = 16,  // text: the region's memory, as Dma::Export gives it
  kWindow = 17,   // key, code; ranges: as many of `bytes` ranges as fit, the rest follows
  kClose = 18,    // key: post no more; answered by kDrained
  kAck = 19,      // op, code: the operation counts, or why it does not
};

struct IpcHeader {
  uint32_t magic = 0x494b5642;  // "BVKI"
  uint16_t version = 1;
  IpcType type = IpcType::kHello;
  uint32_t count = 0;  // of runs or ranges, or bytes of text
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
