#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

// What the two ends of a verbs channel tell each other before the first RDMA WRITE. The sender's
// greeting states its queue pairs; the receiver's answer states the queue pairs that it connected
// to them, and the memory. Both are one message, little-endian: a HandshakeHeader, then for each
// rail a RailHeader and its QueuePairAddresses.
namespace baton {

constexpr size_t kMaxRails = 8;
constexpr size_t kMaxQueuePairsPerRail = 16;

enum class PortKind : uint8_t { kRoceV4 = 1, kRoceV6 = 2, kInfiniBand = 3 };
// "RoCE v2 over IPv4", "RoCE v2 over IPv6", "InfiniBand".
std::string_view NameOf(PortKind kind);

using Gid = std::array<uint8_t, 16>;

// The address of one port of a device.
struct PortAddress {
  Gid gid{};
  uint16_t lid = 0;  // of InfiniBand; 0 for RoCE
  PortKind kind = PortKind::kRoceV4;
  uint8_t mtu = 0;  // enum ibv_mtu: 1 for 256 bytes, to 5 for 4096 bytes
  bool operator==(const PortAddress&) const = default;
};

struct QueuePairAddress {
  uint32_t number = 0;  // 24 bits
  uint32_t psn = 0;     // 24 bits: the first packet sequence number of this end
  bool operator==(const QueuePairAddress&) const = default;
};

// The queue pairs of one end on one rail.
struct RailAddress {
  PortAddress port;
  uint32_t rkey = 0;   // of the receiver's memory; 0 in a greeting
  uint16_t index = 0;  // of the rail
  std::vector<QueuePairAddress> queue_pairs;
  bool operator==(const RailAddress&) const = default;
};

struct Handshake {
  // The receiver's memory; 0 in a greeting.
  uint64_t address = 0;
  uint64_t bytes = 0;
  QueuePairAddress messages;  // the queue pair for frames, which is on the first of the rails
  std::vector<RailAddress> rails;
  bool operator==(const Handshake&) const = default;
};

std::string EncodeHandshake(const Handshake& handshake);
// InvalidArgument for bytes that are not a handshake; the message states the field, the value and
// what this side has or allows.
StatusOr<Handshake> ParseHandshake(std::string_view bytes);

// The descriptor of an endpoint: "1|IP:port|rail,rail…". A rail is its kind ("roce4", "roce6" or
// "ib") and its GID in hex, joined by a colon.
struct VerbsDescriptor {
  std::string address;             // "IP:port" of the socket for frames
  std::vector<PortAddress> rails;  // only kind and gid
};
std::string EncodeVerbsDescriptor(const VerbsDescriptor& descriptor);
StatusOr<VerbsDescriptor> ParseVerbsDescriptor(std::string_view text);

// OK if a queue pair on port `ours` can reach port `theirs` of the same rail, as far as the
// addresses tell.
Status CheckReachable(size_t rail, const PortAddress& ours, const PortAddress& theirs);

}  // namespace baton
