#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/quantile.h"

namespace baton {

// What a benchmark reports of the values of one figure. There is at least one.
inline nlohmann::json Spread(const std::vector<double>& values) {
  return {{"p50", Median(values)},
          {"p99", Quantile(values, 0.99)},
          {"min", Quantile(values, 0)},
          {"max", Quantile(values, 1)}};
}

}  // namespace baton
