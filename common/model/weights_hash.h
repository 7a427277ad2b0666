#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/hash.h"
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

// The sum of the hashes of those pieces of a weight that are in `share`. Calls `done` with the
// bytes of each part of at most 16 pieces that it has read. `done` may be empty.
Hash128 HashOfPieces(std::string_view name,
                     std::span<const std::byte> bytes,
                     const PieceShare& share,
                     const std::function<void(std::span<const std::byte>)>& done = {});

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

// Hashes the part of one rank on threads of its own, beside the thread that loads the weights.
class WeightsHasher final {
 public:
  // `weights`: all weights of the model. `source` outlives this object.
  WeightsHasher(const WeightSource& source,
                std::span<const WeightId> weights,
                const HashPart& part);
  // Stops at the next weight.
  ~WeightsHasher();

  // Waits for the end and returns the sum.
  Hash128 Finish();

 private:
  struct Work {
    WeightId id;
    PieceShare share;
  };
  void Run(const std::stop_token& stop);

  const WeightSource& source_;
  std::vector<Work> work_;
  std::atomic<size_t> next_ = 0;  // of work_
  std::mutex mutex_;
  Hash128 sum_;
  std::vector<std::jthread> threads_;  // the last member, because the threads use the others
};

}  // namespace baton
