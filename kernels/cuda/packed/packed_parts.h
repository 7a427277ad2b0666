#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/packed/packed_format.h"
#include "kernels/tensor.h"

// How a backend packs matrices of files. Pure functions on the host.
namespace baton::cuda {

// The format for a matrix whose parts, of equal columns, have groups; not packed where no format
// has their weights: groups in another order than the inputs, of another size, or cut by the
// columns, parts of different types, scales or zero points beyond those of the format, or so few
// outputs that a tile would be mostly empty.
PackedFormat FormatOf(std::span<const HostMatrix> parts);

// The scale, as the format stores it, and the zero point of each output's groups.
struct PackedScales {
  std::vector<std::byte> scales;  // [rows][groups]
  std::vector<uint8_t> zeros;     // [rows][groups]; empty where the format has none
  std::vector<float> factors;     // [rows]; empty: 1
  int64_t groups = 0;
};
PackedScales ScalesOf(std::span<const HostMatrix> parts, const PackedFormat& format);

}  // namespace baton::cuda
