#include "kvtransfer/wire/slot_table.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "common/base/shared_memory.h"

namespace baton {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t Live(uint64_t op) {
  return op << 1;
}
constexpr uint64_t Counted(uint64_t op) {
  return op << 1 | 1;
}

}  // namespace

StatusOr<Mapping> Mapping::Create(const UniqueFd& fd, size_t least_bytes, bool writable) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return InvalidArgument("the peer's memory is not a memfd sealed against shrinking");
  }
  BATON_ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                         MapSharedMemory(fd, least_bytes, writable));
  return Mapping(bytes.data(), bytes.size());
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

StatusOr<UniqueFd> MakeSealedMemory(const char* name, size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "memfd {} of {} bytes: {}",
                      name,
                      bytes,
                      std::strerror(errno));
  }
  return fd;
}

StatusOr<std::unique_ptr<SlotTable>> SlotTable::Create() {
  BATON_ASSIGN_OR_RETURN(UniqueFd fd,
                         MakeSealedMemory("baton-kv-slots", kSlots * sizeof(uint64_t)));
  return Open(fd);
}

StatusOr<std::unique_ptr<SlotTable>> SlotTable::Open(const UniqueFd& fd) {
  BATON_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Create(fd, kSlots * sizeof(uint64_t), true));
  UniqueFd own(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  return std::unique_ptr<SlotTable>(new SlotTable(std::move(own), std::move(mapping)));
}

std::atomic<uint64_t>& SlotTable::Slot(uint64_t op) const {
  // New memfd pages are zero, which is a valid atomic and a free slot.
  return reinterpret_cast<std::atomic<uint64_t>*>(mapping_.data())[op % kSlots];
}

bool SlotTable::Start(uint64_t op) {
  uint64_t free = 0;
  return Slot(op).compare_exchange_strong(free, Live(op));
}

bool SlotTable::TakeBack(uint64_t op) {
  uint64_t live = Live(op);
  return Slot(op).compare_exchange_strong(live, 0);
}

bool SlotTable::is_live(uint64_t op) const {
  return Slot(op).load() == Live(op);
}

bool SlotTable::Count(uint64_t op) {
  uint64_t live = Live(op);
  return Slot(op).compare_exchange_strong(live, Counted(op));
}

void SlotTable::Free(uint64_t op) {
  uint64_t counted = Counted(op);
  Slot(op).compare_exchange_strong(counted, 0);
}

}  // namespace baton
