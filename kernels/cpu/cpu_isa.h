#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// The instruction sets for which the kernels are compiled, the best one last. All compute the same
// bits.
enum class CpuIsa {
  kPortable,
  kAvx2,         // AVX2, FMA, F16C
  kAvxVnni,      // the same and AVX-VNNI
  kAvx512,       // AVX-512 F, BW, DQ, VL and VNNI
  kNeon,         // 64-bit Arm
  kNeonDotProd,  // NEON with FEAT_DotProd
  kNeonI8mm,     // the same with FEAT_I8MM and FEAT_BF16
};
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::kPortable,
                                      CpuIsa::kAvx2,
                                      CpuIsa::kAvxVnni,
                                      CpuIsa::kAvx512,
                                      CpuIsa::kNeon,
                                      CpuIsa::kNeonDotProd,
                                      CpuIsa::kNeonI8mm};

// The name that stands for the best instruction set.
inline constexpr std::string_view kAutoIsa = "auto";

// "portable", "avx2", "avx_vnni", "avx512", "neon", "neon_dotprod" or "neon_i8mm".
std::string_view Name(CpuIsa isa);

// Whether this build has kernels for `isa` and this processor can run them.
bool Supported(CpuIsa isa);

// The best instruction set that is Supported.
CpuIsa BestCpuIsa();

// The instruction set of this name, or the best one for kAutoIsa. Errors: InvalidArgument for
// another name; FailedPrecondition, which names those that are Supported, for one that is not.
StatusOr<CpuIsa> ParseCpuIsa(std::string_view name);

namespace cpu {
struct KernelTable;
// The kernels of `isa`, which must be Supported.
const KernelTable& Kernels(CpuIsa isa);
}  // namespace cpu

}  // namespace baton
