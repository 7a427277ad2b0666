#include "kvtransfer/codec.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "lists of words are copied as they lie");

// Appends values. The field functions below take a Writer or a Reader, so that the format is
// written down once.
class Writer final {
 public:
  static constexpr bool kReads = false;

  template <typename T>
  void Integer(std::string_view, T& value) {
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  void Text(std::string_view field, std::string& value, size_t) {
    Count(field, value.size());
    bytes_ += value;
  }
  size_t List(std::string_view field, size_t size, size_t, size_t) {
    Count(field, size);
    return size;
  }
  void Words(std::string_view field, std::vector<uint64_t>& values, size_t) {
    Count(field, values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(uint64_t));
  }
  void Refuse(std::string_view, std::string_view) {}
  std::string Take() { return std::move(bytes_); }

 private:
  void Count(std::string_view field, size_t size) {
    auto count = static_cast<uint32_t>(size);
    Integer(field, count);
  }

  std::string bytes_;
};

// Extracts values. After the first error every value is 0 and every list is empty.
class Reader final {
 public:
  static constexpr bool kReads = true;

  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  void Integer(std::string_view field, T& value) {
    value = T{};
    if (rest_.size() < sizeof(T)) return Refuse(field, "is cut off");
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(sizeof(T));
    value = static_cast<T>(bits);
  }
  void Text(std::string_view field, std::string& value, size_t limit) {
    value.clear();
    const size_t size = List(field, 0, limit, 1);
    value = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  void Words(std::string_view field, std::vector<uint64_t>& values, size_t limit) {
    values.resize(List(field, 0, limit, sizeof(uint64_t)));
    if (values.empty()) return;
    const size_t bytes = values.size() * sizeof(uint64_t);
    std::memcpy(values.data(), rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }
  // Reads the size of a list of at most `limit` items of at least `item_bytes` bytes each.
  size_t List(std::string_view field, size_t, size_t limit, size_t item_bytes) {
    uint32_t size = 0;
    Integer(field, size);
    if (size > limit) {
      Refuse(field, fmt::format("has {} items; at most {} are allowed", size, limit));
      return 0;
    }
    if (size > rest_.size() / item_bytes) {
      Refuse(field, fmt::format("has {} items, but only {} bytes follow", size, rest_.size()));
      return 0;
    }
    return size;
  }
  void Refuse(std::string_view field, std::string_view problem) {
    if (error_.empty()) error_ = fmt::format("{} {}", field, problem);
    rest_ = {};
  }
  void SkipRest() { rest_ = {}; }
  const std::string& error() const { return error_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  std::string error_;
};

template <class Io>
void Flag(Io& io, std::string_view field, bool& value) {
  uint8_t byte = value ? 1 : 0;
  io.Integer(field, byte);
  if constexpr (Io::kReads) {
    if (byte > 1) io.Refuse(field, "is neither 0 nor 1");
    value = byte == 1;
  }
}

template <class Io, class Tag>
void Id(Io& io, std::string_view field, StrongId<Tag, std::string>& id) {
  std::string text = id.value();
  io.Text(field, text, kMaxNameBytes);
  if constexpr (Io::kReads) id = StrongId<Tag, std::string>(std::move(text));
}

template <class Io, class Tag, class T>
void Id(Io& io, std::string_view field, StrongId<Tag, T>& id) {
  T value = id.value();
  io.Integer(field, value);
  if constexpr (Io::kReads) id = StrongId<Tag, T>(value);
}

template <class Io>
void Hash(Io& io, std::string_view field, Hash128& hash) {
  io.Integer(field, hash.high);
  io.Integer(field, hash.low);
}

// A duration in microseconds, 0 to about 49 days.
template <class Io>
void Span(Io& io, std::string_view field, Duration& span) {
  constexpr uint64_t kLongest = uint64_t{1} << 42;
  auto micros =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(span).count());
  io.Integer(field, micros);
  if constexpr (Io::kReads) {
    if (micros > kLongest) io.Refuse(field, "is over 49 days");
    span = std::chrono::microseconds(micros > kLongest ? 0 : micros);
  }
}

template <class Io>
void Outcome(Io& io, std::string_view field, Status& status) {
  auto code = static_cast<uint8_t>(status.code());
  std::string text(Message(status).substr(0, kMaxStatusBytes));
  io.Integer(field, code);
  io.Text(field, text, kMaxStatusBytes);
  if constexpr (Io::kReads) {
    if (code == 0 || code > static_cast<uint8_t>(StatusCode::kUnauthenticated)) {
      io.Refuse(field, fmt::format("has code {}, which is not an error code", code));
    }
    status = Status(static_cast<StatusCode>(code), text);
  }
}

// A list whose items are coded one by one.
template <class Io, class T, class Each>
void Items(Io& io,
           std::string_view field,
           std::vector<T>& items,
           size_t limit,
           size_t item_bytes,
           Each each) {
  const size_t size = io.List(field, items.size(), limit, item_bytes);
  if constexpr (Io::kReads) items.assign(size, T{});
  for (T& item : items) each(item);
}

template <class Io>
void Plane(Io& io, KvPlane& plane) {
  io.Text("layout.plane.name", plane.name, kMaxNameBytes);
  io.Integer("layout.plane.heads", plane.heads);
  io.Integer("layout.plane.dim", plane.dim);
  auto dtype = static_cast<uint8_t>(plane.dtype);
  io.Integer("layout.plane.dtype", dtype);
  bool dim_major = plane.order == KvOrder::kDimMajor;
  Flag(io, "layout.plane.dim_major", dim_major);
  Flag(io, "layout.plane.sharded", plane.sharded);
  if constexpr (Io::kReads) {
    if (dtype > static_cast<uint8_t>(DType::kBF16) && dtype != static_cast<uint8_t>(DType::kFp8)) {
      io.Refuse("layout.plane.dtype",
                fmt::format("is {}; it must be f32, f16, bf16 or fp8", dtype));
      return;
    }
    plane.dtype = static_cast<DType>(dtype);
    plane.order = dim_major ? KvOrder::kDimMajor : KvOrder::kTokenMajor;
  }
}

template <class Io>
void Layout(Io& io, KvLayout& layout) {
  const auto layer = [&io](int32_t& value) { io.Integer("layout.layer", value); };
  io.Integer("layout.block_tokens", layout.block_tokens);
  Items(io, "layout.groups", layout.groups, kMaxCacheGroups, 12, [&](KvCacheGroup& group) {
    Items(io, "layout.group.layers", group.layers, kMaxLayers, sizeof(int32_t), layer);
    io.Integer("layout.group.sliding_window", group.sliding_window);
    Items(io, "layout.group.planes", group.planes, kMaxPlanes, 15, [&](KvPlane& plane) {
      Plane(io, plane);
    });
  });
  Items(io, "layout.layer_group_ends", layout.layer_group_ends, kMaxLayers, sizeof(int32_t), layer);
  if constexpr (Io::kReads) {
    if (const Status valid = layout.Validate(); !valid.ok()) io.Refuse("layout", Message(valid));
  }
}

template <class Io>
void Fields(Io& io, Hello& m) {
  io.Integer("version", m.version);
  Id(io, "worker", m.worker);
  if constexpr (Io::kReads) {
    // The HELLO of another version may differ from here on; its version number is enough to refuse
    // it.
    if (m.version != kKvProtocolVersion) return io.SkipRest();
  }
  Id(io, "boot", m.boot);
  Hash(io, "model_fingerprint", m.model_fingerprint);
  Layout(io, m.layout);
  Items(io, "shards", m.shards, kMaxShards, 24, [&](KvShardInfo& info) {
    io.Integer("shard.first_layer", info.shard.first_layer);
    io.Integer("shard.layer_count", info.shard.layer_count);
    io.Integer("shard.first_head", info.shard.first_head);
    io.Integer("shard.head_count", info.shard.head_count);
    io.Integer("shard.block_count", info.block_count);
    if constexpr (Io::kReads) {
      const Status valid = ValidateShard(m.layout, info.shard);
      if (!valid.ok()) io.Refuse("shard", Message(valid));
    }
    Items(io, "shard.endpoints", info.endpoints, kMaxEndpoints, 12, [&](KvEndpoint& endpoint) {
      io.Text("endpoint.transport", endpoint.transport, kMaxNameBytes);
      io.Text("endpoint.descriptor", endpoint.descriptor, kMaxDescriptorBytes);
      io.Integer("endpoint.region", endpoint.region);
    });
  });
}

template <class Io>
void Fields(Io& io, Offer& m) {
  io.Integer("total_tokens", m.total_tokens);
  if constexpr (Io::kReads) {
    if (m.total_tokens == 0 || m.total_tokens > kMaxPromptTokens) {
      io.Refuse("total_tokens",
                fmt::format("is {}; it must be 1 to {}", m.total_tokens, kMaxPromptTokens));
    }
  }
  Span(io, "timeout", m.timeout);
}

template <class Io>
void Fields(Io& io, Grant& m) {
  io.Integer("window_key", m.window_key);
  io.Integer("cached_blocks", m.cached_blocks);
  Flag(io, "checksums", m.checksums);
  io.Integer("links", m.links);
  Items(io, "blocks", m.blocks, kMaxPromptBlocks, 4, [&](BlockId& block) {
    Id(io, "blocks", block);
  });
}

template <class Io>
void Fields(Io& io, Refuse& m) {
  Outcome(io, "status", m.status);
}

template <class Io>
void Fields(Io& io, Seal& m) {
  io.Integer("blocks", m.blocks);
  io.Integer("bytes", m.bytes);
  io.Words("checksums", m.checksums, size_t{kMaxPromptBlocks} * 4);
  io.Text("payload", m.payload, kMaxPayloadBytes);
}

template <class Io>
void Fields(Io& io, Resend& m) {
  io.Integer("attempt", m.attempt);
  Items(io, "blocks", m.blocks, kMaxPromptBlocks, 4, [&](uint32_t& block) {
    io.Integer("blocks", block);
  });
}

template <class Io>
void Fields(Io& io, Ack& m) {
  io.Integer("bytes", m.bytes);
}

template <class Io>
void Fields(Io& io, Renew& m) {
  Flag(io, "granted", m.granted);
  io.Integer("pieces", m.pieces);
}

template <class Io>
void Fields(Io& io, Fail& m) {
  Outcome(io, "status", m.status);
}

template <class Io>
void Fields(Io& io, Abort& m) {
  Outcome(io, "status", m.status);
}

template <class Io>
void Fields(Io& io, DrainAck& m) {
  Flag(io, "found", m.found);
}

template <class Io>
void Fields(Io& io, Bye& m) {
  io.Text("reason", m.reason, kMaxStatusBytes);
}

// Default-constructs the alternative with that index.
template <size_t I = 0>
ControlMessage MakeMessage(size_t index) {
  if constexpr (I + 1 < std::variant_size_v<ControlMessage>) {
    if (index != I) return MakeMessage<I + 1>(index);
  }
  return ControlMessage(std::in_place_index<I>);
}

}  // namespace

std::string EncodeEnvelope(const Envelope& envelope) {
  Envelope copy = envelope;  // the field functions also decode, so they take references
  Writer writer;
  auto kind = static_cast<uint8_t>(copy.message.index());
  writer.Integer("kind", kind);
  Id(writer, "session", copy.session);
  Id(writer, "epoch", copy.epoch);
  std::visit([&](auto& message) { Fields(writer, message); }, copy.message);
  return writer.Take();
}

StatusOr<Envelope> DecodeEnvelope(std::string_view bytes) {
  Reader reader(bytes);
  Envelope envelope;
  uint8_t kind = 0;
  reader.Integer("kind", kind);
  if (kind >= std::variant_size_v<ControlMessage>) {
    return InvalidArgument("KV control message: kind is {}; the highest known is {}",
                           kind,
                           std::variant_size_v<ControlMessage> - 1);
  }
  Id(reader, "session", envelope.session);
  Id(reader, "epoch", envelope.epoch);
  envelope.message = MakeMessage(kind);
  std::visit([&](auto& message) { Fields(reader, message); }, envelope.message);
  if (reader.error().empty() && !reader.at_end()) reader.Refuse("end", "is followed by more bytes");
  if (!reader.error().empty()) {
    return InvalidArgument("KV control message {} of {} bytes: {}",
                           Name(envelope.message),
                           bytes.size(),
                           reader.error());
  }
  return envelope;
}

}  // namespace baton
