#pragma once

#include <string_view>

namespace baton {

// The instruction sets for which the kernels are compiled. All compute the same bits.
enum class CpuIsa {
  kBest,  // the best one that this processor supports
  kPortable,
  kAvx2,    // AVX2, FMA, F16C
  kAvx512,  // AVX-512 F, BW, DQ, VL and VNNI
};

// "best", "portable", "avx2" or "avx512".
std::string_view Name(CpuIsa isa);

// Whether this build has kernels for `isa` and this processor can run them.
bool Supported(CpuIsa isa);

namespace cpu {
struct KernelTable;
// The kernels of `isa`, which must be Supported.
const KernelTable& Kernels(CpuIsa isa);
}  // namespace cpu

}  // namespace baton
