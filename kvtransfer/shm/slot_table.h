#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// A memory mapping that ends with its owner.
class Mapping final {
 public:
  // `fd` must be a memfd that cannot shrink (F_SEAL_SHRINK): reading it can then never fault.
  // InvalidArgument otherwise, or when it is smaller than `least_bytes`.
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

// A memfd of `bytes` zeros that can neither shrink nor grow.
StatusOr<UniqueFd> MakeSealedMemory(const char* name, size_t bytes);

// The state of a channel's outstanding operations, in memory that both processes map. Each side
// settles an operation with one compare-and-swap, so that exactly one of them wins: the sender who
// takes it back, or the receiver who counts it after having read the last byte. What was taken back
// is never counted, however late the receiver reads.
class SlotTable final {
 public:
  static constexpr size_t kSlots = 4096;

  // The sender's, fresh.
  static StatusOr<std::unique_ptr<SlotTable>> Create();
  // The receiver's view of a peer's table.
  static StatusOr<std::unique_ptr<SlotTable>> Open(const UniqueFd& fd);

  const UniqueFd& fd() const { return fd_; }

  // Sender: false when the operation's slot is still taken by an older one.
  bool Start(uint64_t op);
  // Sender: true when the operation is taken back; false when the receiver has counted it.
  bool TakeBack(uint64_t op);
  // Receiver.
  bool is_live(uint64_t op) const;
  // Receiver: true when the operation counts; false when it was taken back.
  bool Count(uint64_t op);
  // Sender: makes the slot free after the end of its operation.
  void Free(uint64_t op);

 private:
  SlotTable(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  std::atomic<uint64_t>& Slot(uint64_t op) const;

  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace baton
