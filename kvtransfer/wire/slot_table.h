#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// A memory mapping; the destructor unmaps it.
class Mapping final {
 public:
  // `fd` must be a memfd that cannot shrink (F_SEAL_SHRINK), so that reads of the mapping never
  // fault. InvalidArgument if it is not, or if it is smaller than `least_bytes`.
  static StatusOr<Mapping> Create(const UniqueFd& fd, size_t least_bytes, bool writable);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A memfd of `bytes` zero bytes that can neither shrink nor grow.
StatusOr<UniqueFd> MakeSealedMemory(const char* name, size_t bytes);

// The state of a channel's outstanding kMapped operations (frame.h), in memory that both processes
// map. Each side settles an operation with one compare-and-swap, so exactly one side succeeds: the
// sender, which takes the operation back, or the receiver, which counts it after reading its last
// byte. An operation that was taken back is never counted, however late the receiver reads. The
// receiver's compare-and-swap releases its reads, and the sender's acquires them, before the sender
// writes over the bytes (docs/memory_ordering.md).
class SlotTable final {
 public:
  static constexpr size_t kSlots = 4096;

  // A new table of the sender.
  static StatusOr<std::unique_ptr<SlotTable>> Create();
  // The receiver's view of a peer's table.
  static StatusOr<std::unique_ptr<SlotTable>> Open(const UniqueFd& fd);

  const UniqueFd& fd() const { return fd_; }

  // Sender: begins the operation. False if an older operation still occupies its slot.
  bool Start(uint64_t op);
  // Sender: true if the operation is now taken back; false if the receiver has counted it.
  bool TakeBack(uint64_t op);
  // Receiver: whether the operation has begun and is neither counted nor taken back.
  bool is_live(uint64_t op) const;
  // Receiver: true if the operation now counts; false if it was taken back.
  bool Count(uint64_t op);
  // Sender: frees the slot of an operation that was counted.
  void Free(uint64_t op);

 private:
  SlotTable(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  std::atomic<uint64_t>& Slot(uint64_t op) const;

  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace baton
