#include "kvtransfer/session/layer_units.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kMaxGroups = 16;
// Exposed times that differ by less are equal: the costs are measurements.
constexpr double kEqual = 1.01;
// The weight of a new measurement.
constexpr double kNew = 0.2;

}  // namespace

double ExposedSeconds(std::span<const int32_t> ends, const ChunkCosts& costs) {
  double sent = 0;
  int32_t begin = 0;
  for (const int32_t end : ends) {
    const double ready = end * costs.compute_seconds;
    sent = std::max(sent, ready) + costs.unit_seconds + (end - begin) * costs.send_seconds;
    begin = end;
  }
  return sent - begin * costs.compute_seconds;
}

std::vector<int32_t> ChooseUnits(std::span<const int32_t> group_ends, const ChunkCosts& costs) {
  BATON_CHECK(!group_ends.empty() && group_ends.size() <= kMaxGroups,
              "{} layer groups; there must be 1 to {}",
              group_ends.size(),
              kMaxGroups);
  const size_t inner = group_ends.size() - 1;
  std::vector<std::vector<int32_t>> choices;
  for (uint32_t bits = 0; bits < (1u << inner); ++bits) {
    std::vector<int32_t> ends;
    for (size_t i = 0; i < inner; ++i) {
      if ((bits >> i & 1) != 0) ends.push_back(group_ends[i]);
    }
    ends.push_back(group_ends.back());
    choices.push_back(std::move(ends));
  }
  const auto exposed = [&](const std::vector<int32_t>& ends) {
    return ExposedSeconds(ends, costs);
  };
  const std::vector<int32_t> least = *std::ranges::min_element(choices, {}, exposed);
  std::vector<int32_t> best = least;
  for (const std::vector<int32_t>& ends : choices) {
    if (exposed(ends) <= exposed(least) * kEqual && ends.size() < best.size()) best = ends;
  }
  return best;
}

void ComputeMeter::OnLayers(
    const SessionKey& session, uint32_t first, size_t blocks, int32_t layers, Time now) {
  const bool goes_on =
      session == last_.session && first == last_.first && layers > last_.layers && blocks > 0;
  if (goes_on) {
    const double measured =
        ToSeconds(now - last_.at) /
        (static_cast<double>(layers - last_.layers) * static_cast<double>(blocks));
    seconds_ = seconds_ == 0 ? measured : (1 - kNew) * seconds_ + kNew * measured;
  }
  last_ = {session, first, layers, now};
}

}  // namespace baton
