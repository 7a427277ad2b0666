#pragma once

#include <cstddef>

namespace baton {

// Instruction sets beyond the architecture's first that a compiler may use for a whole program,
// where the flags of the build ask for them (-march=native). Kernels choose theirs at run time
// instead.
enum class BuildFeature {
#if defined(__x86_64__)
  kSse42,
  kAvx,
  kAvx2,
  kFma,
  kBmi2,
  kAvx512F,
  kAvx512Bw,
  kAvx512Vnni,
#elif defined(__aarch64__)
  kAtomics,
  kDotProd,
  kHalf,
  kI8mm,
  kBf16,
  kSve,
  kSve2,
#else
  kNone,
#endif
  kCount
};
inline constexpr auto kBuildFeatures = static_cast<size_t>(BuildFeature::kCount);

struct FeatureSet {
  bool has[kBuildFeatures];  // by BuildFeature
};

// What the flags of this build let the compiler use. Constant data: reading it runs no code.
extern const FeatureSet kUsedByBuild;

// Ends the process with status 1 and a line on stderr if the processor misses a feature of `used`.
// Every program does this with kUsedByBuild before all else, because an illegal instruction would
// tell a user nothing.
void RequireFeatures(const FeatureSet& used, const FeatureSet& processor);

}  // namespace baton
