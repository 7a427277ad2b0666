#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

// The order of additions in Ops::Experts of a backend of ExchangeMode::kGather, which is the same
// for every number of ranks: the experts of a layer are divided into parts of consecutive experts;
// the outputs of a part's experts are added in the order of the experts, and then the sums of the
// parts: on CPUs in the order of the parts, on GPUs as a binary tree. A rank holds whole parts;
// each of 2, 4 or 8 ranks holds a whole subtree.
inline constexpr int32_t kMaxExpertParts = 8;

inline int32_t ExpertParts(int32_t experts) {
  return std::min(experts, kMaxExpertParts);
}

// The first expert of part `part`; for part ExpertParts(experts), the number of experts.
inline int32_t FirstOfPart(int32_t experts, int32_t part) {
  return static_cast<int32_t>(int64_t{experts} * part / ExpertParts(experts));
}

// The part that has expert `expert`.
constexpr int32_t PartOfExpert(int32_t experts, int32_t expert) {
  const int32_t parts = experts < kMaxExpertParts ? experts : kMaxExpertParts;
  return ((expert + 1) * parts - 1) / experts;
}

// How many parts lie before expert `expert`, which is the first of a part (or the number of
// experts).
inline int32_t PartsBefore(int32_t experts, int32_t expert) {
  int32_t part = 0;
  while (FirstOfPart(experts, part) < expert) ++part;
  return part;
}

}  // namespace baton
