#include "kvtransfer/verbs/handshake.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <optional>

#include <absl/strings/escaping.h>

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "records are copied as they lie");

constexpr uint32_t kMagic = 0x564b5642;  // "BVKV"
constexpr uint16_t kVersion = 3;
constexpr uint32_t kMax24Bits = (1u << 24) - 1;
constexpr uint8_t kMinMtu = 1;
constexpr uint8_t kMaxMtu = 5;

struct HandshakeHeader {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t rails = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  QueuePairAddress messages;
};
static_assert(sizeof(HandshakeHeader) == 32);

struct RailHeader {
  Gid gid{};
  uint16_t lid = 0;
  uint8_t kind = 0;
  uint8_t mtu = 0;
  uint32_t rkey = 0;
  uint16_t index = 0;
  uint16_t queue_pairs = 0;
};
static_assert(sizeof(RailHeader) == 28);
static_assert(sizeof(QueuePairAddress) == 8);

template <class Record>
void Append(std::string& to, const Record& record) {
  to.append(reinterpret_cast<const char*>(&record), sizeof(record));
}

// Removes a record from the front of `bytes`.
template <class Record>
StatusOr<Record> Take(std::string_view& bytes, std::string_view what) {
  Record record;
  if (bytes.size() < sizeof(record)) {
    return InvalidArgument(
        "a handshake ends after {} of the {} bytes of {}", bytes.size(), sizeof(record), what);
  }
  std::memcpy(&record, bytes.data(), sizeof(record));
  bytes.remove_prefix(sizeof(record));
  return record;
}

Status CheckQueuePair(const QueuePairAddress& pair) {
  if (pair.number <= kMax24Bits && pair.psn <= kMax24Bits) return OkStatus();
  return InvalidArgument(
      "a handshake states queue pair {:#x} with packet number {:#x}; both have 24 bits",
      pair.number,
      pair.psn);
}

bool IsKnown(PortKind kind) {
  return kind == PortKind::kRoceV4 || kind == PortKind::kRoceV6 || kind == PortKind::kInfiniBand;
}

StatusOr<RailAddress> TakeRail(std::string_view& bytes) {
  BATON_ASSIGN_OR_RETURN(const auto header, Take<RailHeader>(bytes, "a rail"));
  RailAddress rail;
  rail.port = {header.gid, header.lid, static_cast<PortKind>(header.kind), header.mtu};
  rail.rkey = header.rkey;
  rail.index = header.index;
  if (!IsKnown(rail.port.kind) || header.mtu < kMinMtu || header.mtu > kMaxMtu ||
      header.index >= kMaxRails) {
    return InvalidArgument(
        "a handshake states rail {} of kind {} with MTU code {}; rails are 0 to {}, kinds 1 to 3, "
        "MTU codes {} to {}",
        header.index,
        header.kind,
        header.mtu,
        kMaxRails - 1,
        kMinMtu,
        kMaxMtu);
  }
  if (header.queue_pairs == 0 || header.queue_pairs > kMaxQueuePairsPerRail) {
    return InvalidArgument("a handshake states {} queue pairs on rail {}; 1 to {} are allowed",
                           header.queue_pairs,
                           header.index,
                           kMaxQueuePairsPerRail);
  }
  for (uint16_t i = 0; i < header.queue_pairs; ++i) {
    BATON_ASSIGN_OR_RETURN(const auto pair, Take<QueuePairAddress>(bytes, "a queue pair"));
    BATON_RETURN_IF_ERROR(CheckQueuePair(pair));
    rail.queue_pairs.push_back(pair);
  }
  return rail;
}

std::string_view TagOf(PortKind kind) {
  switch (kind) {
    case PortKind::kRoceV4:
      return "roce4";
    case PortKind::kRoceV6:
      return "roce6";
    case PortKind::kInfiniBand:
      return "ib";
  }
  return "";
}

std::optional<PortAddress> ParseRail(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view hex = text.substr(colon + 1);
  PortAddress port;
  if (hex.size() != 2 * port.gid.size()) return std::nullopt;
  if (!std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return std::isxdigit(c) != 0; })) {
    return std::nullopt;
  }
  const std::string gid = absl::HexStringToBytes(std::string(hex));
  std::memcpy(port.gid.data(), gid.data(), port.gid.size());
  for (const PortKind kind : {PortKind::kRoceV4, PortKind::kRoceV6, PortKind::kInfiniBand}) {
    port.kind = kind;
    if (text.substr(0, colon) == TagOf(kind)) return port;
  }
  return std::nullopt;
}

}  // namespace

std::string_view NameOf(PortKind kind) {
  switch (kind) {
    case PortKind::kRoceV4:
      return "RoCE v2 over IPv4";
    case PortKind::kRoceV6:
      return "RoCE v2 over IPv6";
    case PortKind::kInfiniBand:
      return "InfiniBand";
  }
  return "unknown";
}

std::string EncodeHandshake(const Handshake& handshake) {
  HandshakeHeader header;
  header.rails = static_cast<uint16_t>(handshake.rails.size());
  header.address = handshake.address;
  header.bytes = handshake.bytes;
  header.messages = handshake.messages;
  std::string bytes;
  Append(bytes, header);
  for (const RailAddress& rail : handshake.rails) {
    RailHeader record;
    record.gid = rail.port.gid;
    record.lid = rail.port.lid;
    record.kind = static_cast<uint8_t>(rail.port.kind);
    record.mtu = rail.port.mtu;
    record.rkey = rail.rkey;
    record.index = rail.index;
    record.queue_pairs = static_cast<uint16_t>(rail.queue_pairs.size());
    Append(bytes, record);
    for (const QueuePairAddress& pair : rail.queue_pairs) Append(bytes, pair);
  }
  return bytes;
}

StatusOr<Handshake> ParseHandshake(std::string_view bytes) {
  BATON_ASSIGN_OR_RETURN(const auto header, Take<HandshakeHeader>(bytes, "its header"));
  if (header.magic != kMagic || header.version != kVersion) {
    return InvalidArgument(
        "a handshake begins with {:#010x}, version {}; this side has {:#010x}, version {}",
        header.magic,
        header.version,
        kMagic,
        kVersion);
  }
  if (header.rails == 0 || header.rails > kMaxRails) {
    return InvalidArgument(
        "a handshake states {} rails; 1 to {} are allowed", header.rails, kMaxRails);
  }
  if (header.bytes > ~uint64_t{0} - header.address) {
    return InvalidArgument("a handshake states a memory of {} bytes at {:#x}, which has no end",
                           header.bytes,
                           header.address);
  }
  BATON_RETURN_IF_ERROR(CheckQueuePair(header.messages));
  Handshake handshake{header.address, header.bytes, header.messages, {}};
  for (uint16_t i = 0; i < header.rails; ++i) {
    BATON_ASSIGN_OR_RETURN(RailAddress rail, TakeRail(bytes));
    if (!handshake.rails.empty() && rail.index <= handshake.rails.back().index) {
      return InvalidArgument("a handshake states rail {} after rail {}; rails must ascend",
                             rail.index,
                             handshake.rails.back().index);
    }
    handshake.rails.push_back(std::move(rail));
  }
  if (!bytes.empty()) return InvalidArgument("{} bytes follow a handshake", bytes.size());
  return handshake;
}

std::string EncodeVerbsDescriptor(const VerbsDescriptor& descriptor) {
  std::string text = fmt::format("1|{}|", descriptor.address);
  for (size_t i = 0; i < descriptor.rails.size(); ++i) {
    const PortAddress& rail = descriptor.rails[i];
    text += fmt::format("{}{}:", i == 0 ? "" : ",", TagOf(rail.kind));
    for (const uint8_t byte : rail.gid) text += fmt::format("{:02x}", byte);
  }
  return text;
}

StatusOr<VerbsDescriptor> ParseVerbsDescriptor(std::string_view text) {
  const Status invalid =
      InvalidArgument("verbs descriptor '{}' is not '1|IP:port|kind:GID,…' with 1 to {} rails",
                      text.substr(0, 64),
                      kMaxRails);
  const size_t bar = text.find('|', 2);
  if (!text.starts_with("1|") || bar == std::string_view::npos) return invalid;
  VerbsDescriptor descriptor;
  descriptor.address = text.substr(2, bar - 2);
  for (size_t at = bar + 1; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::optional<PortAddress> rail = ParseRail(text.substr(at, comma - at));
    if (!rail || descriptor.rails.size() == kMaxRails) return invalid;
    descriptor.rails.push_back(*rail);
    at = comma + 1;
  }
  return descriptor;
}

Status CheckReachable(size_t rail, const PortAddress& ours, const PortAddress& theirs) {
  if (ours.kind == theirs.kind) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "rail {} is {} here and {} at the peer",
                    rail,
                    NameOf(ours.kind),
                    NameOf(theirs.kind));
}

}  // namespace baton
