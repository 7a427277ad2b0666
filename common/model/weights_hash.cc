#include "common/model/weights_hash.h"

#include <algorithm>

#include "common/base/thread.h"

namespace baton {
namespace {

constexpr size_t kPartBytes = 16 * kPieceBytes;
// One thread hashes about as fast as memory is read; more keep up with GPUs on large hosts.
constexpr int kProcessorsOfAThread = 4;
constexpr int kMaxThreads = 4;

}  // namespace

Hash128 SumOf(const Hash128& a, const Hash128& b) {
  return {a.high + b.high, a.low + b.low};
}

Hash128 HashOfPieces(std::string_view name,
                     std::span<const std::byte> bytes,
                     const PieceShare& share,
                     const std::function<void(std::span<const std::byte>)>& done) {
  const size_t pieces = (bytes.size() + kPieceBytes - 1) / kPieceBytes;
  const auto index = static_cast<size_t>(share.index);
  const auto count = static_cast<size_t>(share.count);
  const size_t end = pieces * (index + 1) / count;
  Hash128 sum;
  size_t part_begin = pieces * index / count * kPieceBytes;
  for (size_t piece = pieces * index / count; piece < end; ++piece) {
    const size_t at = piece * kPieceBytes;
    const size_t length = std::min(kPieceBytes, bytes.size() - at);
    const uint64_t seed = Xxh3(std::as_bytes(std::span(name)), piece);
    sum = SumOf(sum, Xxh3Wide(bytes.subspan(at, length), seed));
    const size_t part = at + length - part_begin;
    if (part < kPartBytes && piece + 1 < end) continue;
    if (done) done(bytes.subspan(part_begin, part));
    part_begin = at + length;
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

WeightsHasher::WeightsHasher(const WeightSource& source,
                             std::span<const WeightId> weights,
                             const HashPart& part)
    : source_(source) {
  for (const WeightId& id : weights) {
    if (const auto share = part.ShareOf(id)) work_.push_back({id, *share});
  }
  const int threads = std::clamp(AllowedProcessors() / kProcessorsOfAThread, 1, kMaxThreads);
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(
        StartThread("weights-hash", [this](const std::stop_token& stop) { Run(stop); }));
  }
}

WeightsHasher::~WeightsHasher() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void WeightsHasher::Run(const std::stop_token& stop) {
  Hash128 sum;
  for (size_t i = next_++; i < work_.size() && !stop.stop_requested(); i = next_++) {
    sum = SumOf(sum, source_.HashPieces(work_[i].id, work_[i].share));
  }
  std::lock_guard lock(mutex_);
  sum_ = SumOf(sum_, sum);
}

Hash128 WeightsHasher::Finish() {
  for (std::jthread& thread : threads_) thread.join();
  threads_.clear();
  return sum_;
}

}  // namespace baton
