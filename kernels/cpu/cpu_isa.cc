#include "kernels/cpu/cpu_isa.h"

#include "common/base/check.h"
#include "kernels/cpu/kernel_table.h"

namespace baton {
namespace {

#if defined(BATON_KERNELS_X86)
bool HasAvx2() {
  // F16C is not checked: every processor with AVX2 and FMA has it, and not every compiler knows its
  // name here.
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#else
bool HasAvx2() {
  return false;
}
bool HasAvx512() {
  return false;
}
#endif

}  // namespace

std::string_view Name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kBest:
      return "best";
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool Supported(CpuIsa isa) {
  if (isa == CpuIsa::kAvx512) return HasAvx512();
  if (isa == CpuIsa::kAvx2) return HasAvx2();
  return true;
}

namespace cpu {

const KernelTable& Kernels(CpuIsa isa) {
  BATON_CHECK(Supported(isa), "the {} kernels are not supported here", Name(isa));
#if defined(BATON_KERNELS_X86)
  if (isa == CpuIsa::kAvx512 || (isa == CpuIsa::kBest && HasAvx512())) return Avx512Kernels();
  if (isa == CpuIsa::kAvx2 || (isa == CpuIsa::kBest && HasAvx2())) return Avx2Kernels();
#endif
  return PortableKernels();
}

}  // namespace cpu
}  // namespace baton
