#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>

#include "common/base/hash.h"
#include "common/base/work_threads.h"
#include "common/model/weight_slice.h"
#include "common/model/weight_source.h"

// A hash of every byte of a model's weights. It is a sum, so that ranks can each hash a share of
// the bytes: the sum of their hashes is the same however many ranks there are.
//
// Each weight is cut into pieces of kPieceBytes of its bytes in the file. The hash of a piece is
// XXH3-128 with the seed XXH3-64(name of the weight, seed: number of the piece). The sum is taken
// modulo 2^64, of the high and of the low halves separately.
namespace baton {

constexpr size_t kPieceBytes = size_t{1} << 20;

Hash128 SumOf(const Hash128& a, const Hash128& b);

// The sum of the hashes of those pieces of a weight that are in `share`.
Hash128 HashOfPieces(std::string_view name,
                     std::span<const std::byte> bytes,
                     const PieceShare& share);

// The weights that one rank hashes, out of all weights of a model: those of its pipeline stage, and
// of each a share of the pieces. An expert is hashed whole by one rank, which loads at least part
// of it.
struct HashPart {
  IndexRange layers;  // of the rank's stage
  int32_t layer_count = 0;
  int32_t experts = 0;
  PieceShare share;  // among the ranks of the stage

  // Nothing when other ranks hash the weight.
  std::optional<PieceShare> ShareOf(const WeightId& id) const;
};

// Hashes the part of one rank beside the thread that loads the weights, on threads of its own: a
// weight is hashed while it is packed, so that its pages are read once. Used by one thread.
class WeightsHasher final {
 public:
  // `source` outlives this object.
  WeightsHasher(const WeightSource& source, const HashPart& part);

  // Starts to hash the rank's share of the weight, if it has one. The weight must not be released
  // before Wait has returned.
  void Start(const WeightId& id);
  // Waits until everything that was started is hashed.
  void Wait();
  // Hashes those of `weights`, all of the model, that were not started, and returns the sum of all.
  Hash128 Finish(std::span<const WeightId> weights);

 private:
  const WeightSource& source_;
  const HashPart part_;
  const int thread_count_;
  std::set<std::tuple<WeightKind, int32_t, int32_t>> started_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int under_way_ = 0;  // guarded by mutex_, as sum_
  Hash128 sum_;
  WorkThreads threads_;  // the last member, because the threads use the others
};

}  // namespace baton
