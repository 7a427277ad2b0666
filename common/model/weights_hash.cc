#include "common/model/weights_hash.h"

#include <algorithm>

#include "common/base/thread.h"

namespace baton {
namespace {

// One thread hashes about as fast as memory is read; more keep up with GPUs on large hosts.
constexpr int kProcessorsOfAThread = 4;
constexpr int kMaxThreads = 4;

}  // namespace

Hash128 SumOf(const Hash128& a, const Hash128& b) {
  return {a.high + b.high, a.low + b.low};
}

Hash128 HashOfPieces(std::string_view name,
                     std::span<const std::byte> bytes,
                     const PieceShare& share) {
  const size_t pieces = (bytes.size() + kPieceBytes - 1) / kPieceBytes;
  const auto index = static_cast<size_t>(share.index);
  const auto count = static_cast<size_t>(share.count);
  Hash128 sum;
  for (size_t piece = pieces * index / count; piece < pieces * (index + 1) / count; ++piece) {
    const size_t at = piece * kPieceBytes;
    const size_t length = std::min(kPieceBytes, bytes.size() - at);
    const uint64_t seed = Xxh3(std::as_bytes(std::span(name)), piece);
    sum = SumOf(sum, Xxh3Wide(bytes.subspan(at, length), seed));
  }
  return sum;
}

std::optional<PieceShare> HashPart::ShareOf(const WeightId& id) const {
  const bool last = id.kind == WeightKind::kHead || id.kind == WeightKind::kOutputNorm;
  // The embedding and the rope factors are the first stage's.
  const int32_t layer = id.layer >= 0 ? id.layer : (last ? layer_count - 1 : 0);
  if (layer < layers.begin || layer >= layers.end) return std::nullopt;
  if (id.expert < 0 || share.count == 1) return share;
  const int64_t owner = int64_t{id.expert} * share.count / experts;
  return owner == share.index ? std::optional(PieceShare()) : std::nullopt;
}

WeightsHasher::WeightsHasher(const WeightSource& source, const HashPart& part)
    : source_(source),
      part_(part),
      thread_count_(std::clamp(AllowedProcessors() / kProcessorsOfAThread, 1, kMaxThreads)),
      threads_("weights-hash", thread_count_) {}

void WeightsHasher::Start(const WeightId& id) {
  const std::optional<PieceShare> share = part_.ShareOf(id);
  if (!share || !started_.insert({id.kind, id.layer, id.expert}).second) return;
  {
    std::lock_guard lock(mutex_);
    under_way_ += thread_count_;
  }
  for (int i = 0; i < thread_count_; ++i) {
    const PieceShare part{share->index * thread_count_ + i, share->count * thread_count_};
    threads_.Post([this, id, part] {
      const Hash128 hash = source_.HashPieces(id, part);
      std::lock_guard lock(mutex_);
      sum_ = SumOf(sum_, hash);
      if (--under_way_ == 0) changed_.notify_one();
    });
  }
}

void WeightsHasher::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return under_way_ == 0; });
}

Hash128 WeightsHasher::Finish(std::span<const WeightId> weights) {
  for (const WeightId& id : weights) {
    const size_t before = started_.size();
    Start(id);
    if (started_.size() == before) continue;
    Wait();
    source_.Release(id);
  }
  Wait();
  return sum_;
}

}  // namespace baton
