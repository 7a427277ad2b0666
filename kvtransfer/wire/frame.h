#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/message_mac.h"
#include "kvtransfer/transport.h"

// The data protocol of the stream transports (tcp, shm), little-endian. The sender begins with one
// Preface. Frames follow: a WriteHeader, run_count WriteRuns and, on tcp, the payload. The receiver
// answers each frame with one WriteAck. With kAuthenticated, a MacTag follows each message of
// either side: the preface, a header with its runs, a payload (also an empty one), an
// acknowledgement.
namespace baton {

static_assert(std::endian::native == std::endian::little, "frames are copied as they lie");

constexpr uint32_t kPrefaceMagic = 0x504b5642;  // "BVKP"
constexpr uint32_t kWriteMagic = 0x574b5642;    // "BVKW"
constexpr uint32_t kAckMagic = 0x414b5642;      // "BVKA"
constexpr uint16_t kFrameVersion = 1;
// Of the handshake (common/base/peer_proof.h) that comes before the preface, if the transport's
// options have PeerProofs.
constexpr std::string_view kDataPurpose = "KvData";
constexpr uint64_t kMaxOpBytes = uint64_t{1} << 30;
constexpr uint32_t kMaxOpRuns = 1u << 13;
constexpr size_t kMaxOutstandingOps = 4096;  // of one channel

// tcp: a payload whose runs are shorter than this on average is gathered into one buffer at the
// sender, and scattered from one at the receiver, because a system call and a checksum of many
// short pieces cost more than a copy. Measured: bench/results/cpu/kv_ranks.json.
constexpr uint64_t kMaxStagedRunBytes = 1024;

enum class PayloadKind : uint16_t {
  kInline = 1,  // the payload follows the runs
  kMapped = 2,  // the receiver reads the sender's memory; the preface carries two descriptors
};

constexpr uint32_t kAuthenticated = 1;  // of Preface::flags

struct Preface {
  uint32_t magic = kPrefaceMagic;
  uint16_t version = kFrameVersion;
  PayloadKind kind = PayloadKind::kInline;
  uint32_t region = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(Preface) == 16);

struct WriteHeader {
  uint32_t magic = kWriteMagic;
  uint32_t run_count = 0;
  uint64_t op = 0;
  uint64_t window_key = 0;
  uint64_t tag = 0;
  uint64_t granule = 0;
  uint64_t payload_bytes = 0;
};
static_assert(sizeof(WriteHeader) == 48);
static_assert(sizeof(WriteRun) == 24);

struct WriteAck {
  uint32_t magic = kAckMagic;
  uint32_t code = 0;  // a StatusCode; 0: every byte is in place
  uint64_t op = 0;
};
static_assert(sizeof(WriteAck) == 16);

// Check bytes that came from outside: magic, version, kind, counts. The error states what is
// invalid.
Status CheckPreface(const Preface& preface, PayloadKind expected);
Status CheckHeader(const WriteHeader& header);
// OK if the tag that came with a message is the one that the message has. Unauthenticated if not.
Status CheckTag(const MacTag& received, const MacTag& computed, std::string_view message);
// OK if no run is empty and the runs add up to exactly the header's payload. The same for ranges.
Status CheckRuns(const WriteHeader& header, std::span<const WriteRun> runs);
Status CheckRanges(const WriteHeader& header, std::span<const ByteRange> ranges);
// OK if every run's source lies inside a memory of `size` bytes.
Status CheckSources(std::span<const WriteRun> runs, uint64_t size);
// OK if each of the ranges `written` lies inside one of the ranges `allowed`, which ascend.
Status CheckDestinations(std::span<const ByteRange> written, std::span<const ByteRange> allowed);

// The header of a write from a local memory of `source_bytes` bytes, or the reason why it may not
// be posted.
StatusOr<WriteHeader> HeaderOf(const WriteOp& op, uint64_t id, uint64_t source_bytes);

}  // namespace baton
