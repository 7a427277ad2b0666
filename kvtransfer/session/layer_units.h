#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "kvtransfer/messages/messages.h"

// Which layers of a chunk are sent together while the next layers are computed. Pure.
namespace baton {

// What the layers of one chunk of a prompt cost.
struct ChunkCosts {
  double compute_seconds = 0;  // of one layer
  double send_seconds = 0;     // of one layer
  double unit_seconds = 0;     // besides its layers, of each unit
};

// The time from the end of the computation until everything is sent, if the layers up to each of
// `ends` (ascending; the last one is all layers) are sent together, as soon as they are computed
// and the units before them are sent.
double ExposedSeconds(std::span<const int32_t> ends, const ChunkCosts& costs);

// The ends of the units, a subset of `group_ends` that contains the last one: those with the least
// exposed time and, among equals, the fewest units. `group_ends` has at most 16 entries.
std::vector<int32_t> ChooseUnits(std::span<const int32_t> group_ends, const ChunkCosts& costs);

// Measures how fast prompts are computed, from the reports of their layers.
class ComputeMeter final {
 public:
  // The first `layers` layers of `blocks` blocks from `first` on are computed.
  void OnLayers(const SessionKey& session, uint32_t first, size_t blocks, int32_t layers, Time now);
  // Of one layer of one block. 0 before the first measurement.
  double seconds_per_layer() const { return seconds_; }

 private:
  struct Report {
    SessionKey session;
    uint32_t first = 0;
    int32_t layers = 0;
    Time at{};
  };
  Report last_;
  double seconds_ = 0;
};

}  // namespace baton
