#pragma once

#include <vector>

namespace baton {

// The value below which `share` (0 to 1) of the others lie, the nearest one there is; 0 of none.
double Quantile(std::vector<double> values, double share);
double Median(std::vector<double> values);

}  // namespace baton
