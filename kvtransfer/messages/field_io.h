#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "kvtransfer/messages/codec.h"
#include "kvtransfer/messages/messages.h"

// The encoding of fields in the messages of this library: integers are little-endian with a fixed
// width; strings and lists follow a 32-bit count.
namespace baton {

static_assert(std::endian::native == std::endian::little, "lists of words are copied as they lie");

// Appends values. Functions on fields take a FieldWriter or a FieldReader, so that the format is
// written down once.
class FieldWriter final {
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
class FieldReader final {
 public:
  static constexpr bool kReads = true;

  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

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

// Grant::blocks.
template <class Io>
void BlocksByGroup(Io& io, std::string_view field, std::vector<std::vector<BlockId>>& groups) {
  Items(io, field, groups, kMaxCacheGroups, 4, [&](std::vector<BlockId>& blocks) {
    Items(io, field, blocks, kMaxPromptBlocks, 4, [&](BlockId& block) { Id(io, field, block); });
  });
}

template <class Io>
void Shard(Io& io, KvShard& shard) {
  io.Integer("shard.first_layer", shard.first_layer);
  io.Integer("shard.layer_count", shard.layer_count);
  io.Integer("shard.first_head", shard.first_head);
  io.Integer("shard.head_count", shard.head_count);
}

template <class Io>
void Endpoints(Io& io, std::vector<KvEndpoint>& endpoints) {
  Items(io, "shard.endpoints", endpoints, kMaxEndpoints, 12, [&](KvEndpoint& endpoint) {
    io.Text("endpoint.transport", endpoint.transport, kMaxNameBytes);
    io.Text("endpoint.descriptor", endpoint.descriptor, kMaxDescriptorBytes);
    io.Integer("endpoint.region", endpoint.region);
  });
}

}  // namespace baton
