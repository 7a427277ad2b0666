#include "kernels/cuda/exchange/peer_slots.h"

#include <atomic>
#include <cstring>

#include "common/base/hash.h"
#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {
namespace {

// The largest sum that one exchange moves: the activations of 8,192 tokens of 4,096 numbers in
// bf16.
constexpr size_t kSumBytes = size_t{64} << 20;
// Slots begin at multiples of this.
constexpr size_t kSlotMultiple = 256;

// Two ranks push all numbers to each other. Of more ranks, each pushes two slices to each other
// rank (LaunchTwoShotSum), so that all slots of a rank have less than 256 MiB for any number of
// ranks.
constexpr size_t PartBytes(int ranks) {
  const size_t slices = kSlotMultiple * static_cast<size_t>(ranks);
  return (2 * kSumBytes + slices - 1) / slices * kSlotMultiple;
}
static_assert(PartBytes(2) == kSumBytes);

// Half of the part of a prompt of 8,192 tokens with 8,192 activations.
constexpr size_t kPlaceBytes = size_t{64} << 20;

// Tells ranks that are threads of one process from ranks in other processes.
uint64_t ProcessId() {
  static const uint64_t id = RandomId();
  return id;
}

// One record of every rank, by rank.
template <class T>
StatusOr<std::vector<T>> GatherRecords(Collective& host, const T& mine) {
  const auto size = static_cast<size_t>(host.size());
  std::vector<T> all(size);
  all[static_cast<size_t>(host.rank())] = mine;
  std::vector<size_t> ends;
  for (size_t i = 1; i <= size; ++i) ends.push_back(i * sizeof(T));
  const CollectiveRows rows = {
      .data = reinterpret_cast<std::byte*>(all.data()), .count = 1, .stride = size * sizeof(T)};
  BATON_RETURN_IF_ERROR(host.AllGather(rows, ends));
  return all;
}

}  // namespace

struct PeerSlots::Address {
  uint64_t process = 0;
  std::byte* memory = nullptr;  // valid in that process
  int32_t device = 0;           // its number in that process
  int32_t allocated = 0;
  cudaIpcMemHandle_t handle = {};
};

PeerSlots::PeerSlots(int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      part_bytes_(PartBytes(ranks)),
      place_bytes_(ranks == 2 ? kPlaceBytes : 0),
      peers_(static_cast<size_t>(ranks)) {}

PeerSlots::~PeerSlots() {
  for (std::byte* const memory : imported_) cudaIpcCloseMemHandle(memory);
  cudaFree(own_);
}

StatusOr<std::unique_ptr<PeerSlots>> PeerSlots::Create(Collective& host) {
  if (host.size() > kMaxPeerRanks) {
    return MakeStatus(
        StatusCode::kUnavailable, "{} ranks; slots serve {}", host.size(), kMaxPeerRanks);
  }
  std::unique_ptr<PeerSlots> slots(new PeerSlots(host.rank(), host.size()));
  Status status = slots->Allocate();
  Address mine = {.process = ProcessId(),
                  .memory = slots->own_,
                  .device = slots->device_,
                  .allocated = status.ok() ? 1 : 0};
  if (status.ok()) status = ToStatus(cudaIpcGetMemHandle(&mine.handle, slots->own_), "exporting");
  BATON_ASSIGN_OR_RETURN(const auto addresses, GatherRecords(host, mine));
  for (int rank = 0; rank < host.size() && status.ok(); ++rank) {
    if (rank == host.rank()) continue;
    const auto index = static_cast<size_t>(rank);
    const auto memory = slots->Open(addresses[index]);
    if (memory.ok()) {
      slots->peers_[index] = *memory;
    } else {
      status = Annotate(memory.status(), fmt::format("the memory of tensor rank {}", rank));
    }
  }
  // No rank pushes before all can.
  BATON_ASSIGN_OR_RETURN(const auto all_can, GatherRecords(host, int32_t{status.ok() ? 1 : 0}));
  BATON_RETURN_IF_ERROR(status);
  for (size_t rank = 0; rank < all_can.size(); ++rank) {
    if (all_can[rank] == 0) {
      return MakeStatus(
          StatusCode::kUnavailable, "tensor rank {} cannot reach the memory of the others", rank);
    }
  }
  return slots;
}

Status PeerSlots::Allocate() {
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device_));
  BATON_RETURN_IF_ERROR(aborted_.Reserve(sizeof(int32_t)));
  std::memset(aborted_.data(), 0, sizeof(int32_t));
  const size_t bytes = kHalves * HalfBytes();
  BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(reinterpret_cast<void**>(&own_), PlaceOffset(kPlaces)));
  BATON_CUDA_RETURN_IF_ERROR(cudaMemset(own_, static_cast<int>(kEmptySlot & 0xff), bytes));
  BATON_CUDA_RETURN_IF_ERROR(cudaMemset(own_ + bytes, 0, sizeof(int32_t)));
  // The other ranks' stores do not wait for the default stream.
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
  return OkStatus();
}

StatusOr<std::byte*> PeerSlots::Open(const Address& peer) {
  if (peer.allocated == 0) return Status(StatusCode::kUnavailable, "it could not be allocated");
  if (peer.process == ProcessId()) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer.device, 0);
    cudaGetLastError();  // clears the error of an access that was enabled before
    if (error != cudaErrorPeerAccessAlreadyEnabled) BATON_CUDA_RETURN_IF_ERROR(error);
    return peer.memory;
  }
  void* memory = nullptr;
  const cudaError_t error =
      cudaIpcOpenMemHandle(&memory, peer.handle, cudaIpcMemLazyEnablePeerAccess);
  cudaGetLastError();
  BATON_CUDA_RETURN_IF_ERROR(error);
  imported_.push_back(static_cast<std::byte*>(memory));
  return imported_.back();
}

PeerTargets PeerSlots::Targets(int half) const {
  PeerTargets to = {};
  size_t peer = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    const auto slot = static_cast<size_t>(rank_ - (rank_ > rank ? 1 : 0));
    to[peer++] =
        reinterpret_cast<uint4*>(peers_[static_cast<size_t>(rank)] +
                                 static_cast<size_t>(half) * HalfBytes() + slot * part_bytes_);
  }
  return to;
}

PeerParts PeerSlots::Parts(int half) const {
  return {.slots = reinterpret_cast<uint4*>(own_ + static_cast<size_t>(half) * HalfBytes()),
          .slot_vectors = static_cast<int64_t>(part_bytes_ / sizeof(uint4)),
          .ranks = ranks_,
          .rank = rank_,
          .aborted = reinterpret_cast<const int32_t*>(aborted_.data()),
          .gave_up = reinterpret_cast<int32_t*>(own_ + kHalves * HalfBytes())};
}

void PeerSlots::Abort() {
  std::atomic_ref<int32_t>(*reinterpret_cast<int32_t*>(aborted_.data())).store(1);
}

}  // namespace baton::cuda
