#include "kernels/cpu/cpu_isa.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/check.h"
#include "kernels/cpu/kernel_table.h"

#if defined(BATON_KERNELS_X86)
#include <cpuid.h>
#elif defined(BATON_KERNELS_ARM64)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace baton {
namespace {

#if defined(BATON_KERNELS_X86)
bool HasAvx2() {
  // F16C is not checked: every processor with AVX2 and FMA has it, and not every compiler knows its
  // name here.
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool HasAvxVnni() {
  // Not every compiler knows the name here: leaf 7, subleaf 1, EAX, bit 4.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return HasAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#elif defined(BATON_KERNELS_ARM64)
// Whether the kernel reports all features of `mask` in entry `type` of the auxiliary vector.
bool HasAll(uint64_t type, uint64_t mask) {
  return (::getauxval(type) & mask) == mask;
}
bool HasDotProd() {
  // The first three are those of Armv8.2 that a compiler may use.
  return HasAll(AT_HWCAP, HWCAP_CRC32 | HWCAP_ATOMICS | HWCAP_ASIMDRDM | HWCAP_ASIMDDP);
}
bool HasI8mm() {
  return HasDotProd() && HasAll(AT_HWCAP2, HWCAP2_I8MM | HWCAP2_BF16);
}
#endif

}  // namespace

std::string_view Name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvxVnni:
      return "avx_vnni";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kNeon:
      return "neon";
    case CpuIsa::kNeonDotProd:
      return "neon_dotprod";
    case CpuIsa::kNeonI8mm:
      return "neon_i8mm";
  }
  return "unknown";
}

bool Supported(CpuIsa isa) {
  if (isa == CpuIsa::kPortable) return true;
#if defined(BATON_KERNELS_X86)
  if (isa == CpuIsa::kAvx2) return HasAvx2();
  if (isa == CpuIsa::kAvxVnni) return HasAvxVnni();
  if (isa == CpuIsa::kAvx512) return HasAvx512();
#elif defined(BATON_KERNELS_ARM64)
  if (isa == CpuIsa::kNeon) return true;
  if (isa == CpuIsa::kNeonDotProd) return HasDotProd();
  if (isa == CpuIsa::kNeonI8mm) return HasI8mm();
#endif
  return false;
}

CpuIsa BestCpuIsa() {
  CpuIsa best = CpuIsa::kPortable;
  for (const CpuIsa isa : kCpuIsas) {
    if (Supported(isa)) best = isa;
  }
  return best;
}

StatusOr<CpuIsa> ParseCpuIsa(std::string_view name) {
  if (name == kAutoIsa) return BestCpuIsa();
  std::vector<std::string_view> all = {kAutoIsa};
  std::vector<std::string_view> supported;
  for (const CpuIsa isa : kCpuIsas) {
    if (Name(isa) == name && Supported(isa)) return isa;
    all.push_back(Name(isa));
    if (Supported(isa)) supported.push_back(Name(isa));
  }
  if (std::find(all.begin(), all.end(), name) == all.end()) {
    return InvalidArgument("cpu_isa is '{}'; it must be one of {}", name, fmt::join(all, ", "));
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "cpu_isa is '{}', which this processor or build does not have; it has {}",
                    name,
                    fmt::join(supported, ", "));
}

namespace cpu {

const KernelTable& Kernels(CpuIsa isa) {
  BATON_CHECK(Supported(isa), "the {} kernels are not supported here", Name(isa));
#if defined(BATON_KERNELS_X86)
  if (isa == CpuIsa::kAvx512) return Avx512Kernels();
  if (isa == CpuIsa::kAvxVnni) return AvxVnniKernels();
  if (isa == CpuIsa::kAvx2) return Avx2Kernels();
#elif defined(BATON_KERNELS_ARM64)
  if (isa == CpuIsa::kNeonI8mm) return NeonI8mmKernels();
  if (isa == CpuIsa::kNeonDotProd) return NeonDotProdKernels();
  if (isa == CpuIsa::kNeon) return NeonKernels();
#endif
  return PortableKernels();
}

}  // namespace cpu
}  // namespace baton
