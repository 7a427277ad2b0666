#pragma once

#include <vector>

namespace baton {

// The quantile `share` (0 to 1) of `values`: the value at the nearest rank, without interpolation.
// 0 when `values` is empty.
double Quantile(std::vector<double> values, double share);
double Median(std::vector<double> values);

}  // namespace baton
