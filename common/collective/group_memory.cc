#include "common/collective/group_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/shared_memory.h"

namespace baton {
namespace {

constexpr uint64_t kMagic = 0x50554f5247544142;  // "BATGROUP"
constexpr uint32_t kVersion = 1;
constexpr size_t kPage = 4096;
constexpr size_t kMaxMessage = 1024;
constexpr int kMaxRanks = 1024;
constexpr size_t kMaxSlotBytes = size_t{1} << 30;

Status CheckLayout(const GroupLayout& layout) {
  if (layout.ranks < 1 || layout.ranks > kMaxRanks) {
    return InvalidArgument(
        "the group has {} ranks; it must have between 1 and {}", layout.ranks, kMaxRanks);
  }
  for (size_t i = 0; i < layout.collectives.size(); ++i) {
    const CollectiveLayout& one = layout.collectives[i];
    if (one.slot_bytes < sizeof(float) || one.slot_bytes > kMaxSlotBytes ||
        one.slot_bytes % sizeof(float) != 0) {
      return InvalidArgument(
          "slot_bytes of collective {} is {}; it must be a multiple of 4 between 4 and {}",
          i,
          one.slot_bytes,
          kMaxSlotBytes);
    }
    if (one.ranks.empty()) return InvalidArgument("collective {} has no ranks", i);
    std::set<int> seen;
    for (const int rank : one.ranks) {
      if (rank < 0 || rank >= layout.ranks || !seen.insert(rank).second) {
        return InvalidArgument(
            "collective {} names rank {}; it must name different ranks between 0 and {}",
            i,
            rank,
            layout.ranks - 1);
      }
    }
  }
  return OkStatus();
}

uint64_t HashOf(const GroupLayout& layout) {
  std::vector<uint64_t> words = {static_cast<uint64_t>(layout.ranks)};
  for (const CollectiveLayout& one : layout.collectives) {
    words.push_back(one.slot_bytes);
    words.push_back(one.ranks.size());
    words.insert(words.end(), one.ranks.begin(), one.ranks.end());
  }
  return Xxh3(std::as_bytes(std::span(words)));
}

size_t AreaBytes(const CollectiveLayout& one) {
  const size_t bytes = ExchangeArea::Bytes(static_cast<int>(one.ranks.size()), one.slot_bytes);
  return (bytes + kPage - 1) / kPage * kPage;
}

size_t BytesOf(const GroupLayout& layout) {
  size_t bytes = kPage;
  for (const CollectiveLayout& one : layout.collectives) bytes += AreaBytes(one);
  return bytes;
}

}  // namespace

// The first page. The rest are the areas of the collectives, in order.
struct GroupMemory::Header {
  uint64_t magic;
  uint32_t version;
  uint32_t ranks;
  uint64_t layout;
  uint64_t bytes;
  uint32_t aborted;        // 1 + the rank that is gone or late; 0: no abort
  uint32_t message_bytes;  // 1 + the length; 0: the message is not written yet
  char message[kMaxMessage];
};

StatusOr<std::unique_ptr<GroupMemory>> GroupMemory::Create(const GroupLayout& layout) {
  static_assert(sizeof(Header) <= kPage);
  BATON_RETURN_IF_ERROR(CheckLayout(layout));
  const size_t bytes = BytesOf(layout);
  UniqueFd fd(::memfd_create("baton-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "cannot create {} bytes of memory for the group: {}",
                      bytes,
                      std::strerror(errno));
  }
  BATON_ASSIGN_OR_RETURN(auto memory, Map(std::move(fd), layout));
  Header& header = memory->header();
  header.magic = kMagic;
  header.version = kVersion;
  header.ranks = static_cast<uint32_t>(layout.ranks);
  header.layout = HashOf(layout);
  header.bytes = bytes;
  return memory;
}

StatusOr<std::unique_ptr<GroupMemory>> GroupMemory::Open(UniqueFd fd, const GroupLayout& layout) {
  BATON_RETURN_IF_ERROR(CheckLayout(layout));
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct stat info = {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(fd.get(), &info) != 0) {
    return InvalidArgument(
        "descriptor {} is not a group's memory: it must be a memfd that cannot shrink", fd.get());
  }
  const size_t bytes = BytesOf(layout);
  if (static_cast<size_t>(info.st_size) != bytes) {
    return InvalidArgument(
        "the group's memory has {} bytes; the layout of this rank needs {}: all ranks must have "
        "the same layout",
        info.st_size,
        bytes);
  }
  BATON_ASSIGN_OR_RETURN(auto memory, Map(std::move(fd), layout));
  const Header& header = memory->header();
  if (header.magic != kMagic) {
    return InvalidArgument(
        "the shared memory is not a group's: its first word is {:#x}; it must be {:#x}",
        header.magic,
        kMagic);
  }
  if (header.version != kVersion) {
    return InvalidArgument(
        "the group's memory has version {}; this program has version {}", header.version, kVersion);
  }
  if (header.ranks != static_cast<uint32_t>(layout.ranks)) {
    return InvalidArgument(
        "the group's memory is for {} ranks; this rank expects {}", header.ranks, layout.ranks);
  }
  if (header.layout != HashOf(layout) || header.bytes != bytes) {
    return InvalidArgument(
        "the group's memory has layout {:016x}; this rank has layout {:016x}: all ranks must have "
        "the same layout",
        header.layout,
        HashOf(layout));
  }
  return memory;
}

StatusOr<std::unique_ptr<GroupMemory>> GroupMemory::OpenOf(pid_t pid,
                                                           int fd,
                                                           const GroupLayout& layout) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  UniqueFd own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!own.valid()) {
    return MakeStatus(
        StatusCode::kNotFound, "cannot open the group's memory {}: {}", path, std::strerror(errno));
  }
  return Open(std::move(own), layout);
}

StatusOr<std::unique_ptr<GroupMemory>> GroupMemory::Map(UniqueFd fd, const GroupLayout& layout) {
  BATON_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, MapSharedMemory(fd, BytesOf(layout)));
  return std::unique_ptr<GroupMemory>(
      new GroupMemory(std::move(fd), bytes.data(), bytes.size(), layout));
}

GroupMemory::GroupMemory(UniqueFd fd, std::byte* data, size_t bytes, const GroupLayout& layout)
    : fd_(std::move(fd)), data_(data), bytes_(bytes), layout_(layout) {
  std::byte* place = data + kPage;
  for (const CollectiveLayout& one : layout.collectives) {
    areas_.emplace_back(place, static_cast<int>(one.ranks.size()), one.slot_bytes);
    place += AreaBytes(one);
  }
}

GroupMemory::~GroupMemory() {
  ::munmap(data_, bytes_);
}

GroupMemory::Header& GroupMemory::header() const {
  return *reinterpret_cast<Header*>(data_);
}

void GroupMemory::Abort(int rank, std::string_view message) {
  Header& h = header();
  uint32_t none = 0;
  if (std::atomic_ref(h.aborted).compare_exchange_strong(none, static_cast<uint32_t>(rank) + 1)) {
    const size_t length = std::min(message.size(), kMaxMessage);
    std::memcpy(h.message, message.data(), length);
    StoreWord(h.message_bytes, static_cast<uint32_t>(length) + 1);
  }
  // Also after another process's abort, because that process may be gone before it wakes anyone.
  for (const ExchangeArea& one : areas_) {
    for (int member = 0; member < one.members(); ++member) one.Ring(member);
  }
}

bool GroupMemory::aborted() const {
  return LoadWord(header().aborted) != 0;
}

std::optional<int> GroupMemory::aborted_by() const {
  const uint32_t rank = LoadWord(header().aborted);
  return rank == 0 ? std::nullopt : std::optional(static_cast<int>(rank) - 1);
}

Status GroupMemory::abort_status() const {
  const Header& h = header();
  const uint32_t rank = LoadWord(h.aborted);
  if (rank == 0) return OkStatus();
  // The process that aborts may be killed before it has written the message.
  const SteadyClock clock;
  const Time until = clock.Now() + std::chrono::milliseconds(1);
  uint32_t length = LoadWord(h.message_bytes);
  while (length == 0 && clock.Now() < until) {
    std::this_thread::yield();
    length = LoadWord(h.message_bytes);
  }
  const std::string_view message =
      length == 0 ? "no reason is known"
                  : std::string_view(h.message, std::min<size_t>(length - 1, kMaxMessage));
  return MakeStatus(
      StatusCode::kUnavailable, "the group is aborted because of rank {}: {}", rank - 1, message);
}

int GroupMemory::WaitsFor(int rank) const {
  for (size_t i = 0; i < areas_.size(); ++i) {
    const std::vector<int>& ranks = layout_.collectives[i].ranks;
    for (size_t member = 0; member < ranks.size(); ++member) {
      if (ranks[member] != rank) continue;
      const uint32_t source = LoadWord(areas_[i].doorbell(static_cast<int>(member)).waiting_for);
      if (source != 0 && source <= ranks.size()) return ranks[source - 1];
    }
  }
  return rank;
}

int GroupMemory::Culprit(int rank, int waiting) const {
  std::set<int> seen = {waiting, rank};
  int culprit = rank;
  while (true) {
    const int next = WaitsFor(culprit);
    if (next == culprit) return culprit;
    // Ranks that wait for each other: the first of them was stopped while it slept.
    if (!seen.insert(next).second) return rank;
    culprit = next;
  }
}

}  // namespace baton
