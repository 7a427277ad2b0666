#include "kvtransfer/sideband/frame.h"

#include <bit>
#include <cstring>
#include <utility>

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are copied as they lie");

size_t RecordBytes(SidebandType type) {
  switch (type) {
    case SidebandType::kLanded:
    case SidebandType::kSend:
    case SidebandType::kWindow:
      return sizeof(ByteRange);
    case SidebandType::kHello:
    case SidebandType::kWelcome:
    case SidebandType::kNote:
      return 1;
    default:
      return 0;
  }
}

size_t MaxRecords(SidebandType type) {
  return type == SidebandType::kNote ? kMaxSidebandNoteBytes : kMaxSidebandRecords;
}

bool IsKnown(SidebandType type) {
  const auto value = static_cast<uint16_t>(type);
  return (value >= static_cast<uint16_t>(SidebandType::kHello) &&
          value <= static_cast<uint16_t>(SidebandType::kSend)) ||
         (value >= static_cast<uint16_t>(SidebandType::kWelcome) &&
          value <= static_cast<uint16_t>(SidebandType::kAck));
}

}  // namespace

std::string EncodeSidebandFrame(const SidebandFrame& frame) {
  SidebandHeader header = frame.header;
  header.count = static_cast<uint32_t>(frame.ranges.size() + frame.text.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  const auto append = [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  append(frame.ranges.data(), frame.ranges.size() * sizeof(ByteRange));
  append(frame.text.data(), frame.text.size());
  return bytes;
}

StatusOr<SidebandFrame> ParseSidebandFrame(std::span<const std::byte> bytes) {
  SidebandFrame frame;
  if (bytes.size() < sizeof(frame.header)) {
    return InvalidArgument(
        "a frame of {} bytes; at least {} are needed", bytes.size(), sizeof(frame.header));
  }
  std::memcpy(&frame.header, bytes.data(), sizeof(frame.header));
  const SidebandHeader& header = frame.header;
  const SidebandHeader ours;
  if (header.magic != ours.magic || header.version != ours.version || !IsKnown(header.type)) {
    return InvalidArgument(
        "a frame begins with {:#010x}, version {}, type {}; this side has "
        "{:#010x}, version {}",
        header.magic,
        header.version,
        static_cast<uint16_t>(header.type),
        ours.magic,
        ours.version);
  }
  const size_t record = RecordBytes(header.type);
  const std::span<const std::byte> rest = bytes.subspan(sizeof(header));
  if (header.count > MaxRecords(header.type) || rest.size() != header.count * record ||
      (record == 0 && header.count > 0)) {
    return InvalidArgument(
        "a frame of type {} states {} records in {} bytes, which do not fit together",
        static_cast<uint16_t>(header.type),
        header.count,
        rest.size());
  }
  if (rest.empty()) return frame;
  if (record == sizeof(ByteRange)) {
    frame.ranges.resize(header.count);
    std::memcpy(frame.ranges.data(), rest.data(), rest.size());
  } else {
    frame.text.assign(reinterpret_cast<const char*>(rest.data()), rest.size());
  }
  return frame;
}

std::string EncodeStreamFrame(const SidebandFrame& frame) {
  const std::string bytes = EncodeSidebandFrame(frame);
  const auto length = static_cast<uint32_t>(bytes.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + bytes;
}

StatusOr<std::optional<SidebandFrame>> TakeStreamFrame(std::string_view stream, size_t& offset) {
  const std::string_view left = stream.substr(offset);
  uint32_t length = 0;
  if (left.size() < sizeof(length)) return std::optional<SidebandFrame>();
  std::memcpy(&length, left.data(), sizeof(length));
  if (length > kMaxSidebandFrameBytes) {
    return InvalidArgument(
        "a frame of {} bytes; at most {} are allowed", length, kMaxSidebandFrameBytes);
  }
  if (left.size() - sizeof(length) < length) return std::optional<SidebandFrame>();
  const std::string_view bytes = left.substr(sizeof(length), length);
  BATON_ASSIGN_OR_RETURN(SidebandFrame frame,
                         ParseSidebandFrame(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  offset += sizeof(length) + length;
  return std::optional<SidebandFrame>(std::move(frame));
}

}  // namespace baton
