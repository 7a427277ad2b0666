#include "common/cpu_check/build_features.h"

namespace baton {
namespace {

constexpr void Set(FeatureSet& used, BuildFeature feature) {
  used.has[static_cast<size_t>(feature)] = true;
}

constexpr FeatureSet UsedByBuild() {
  FeatureSet used{};
#if defined(__x86_64__)
#if defined(__SSE4_2__)
  Set(used, BuildFeature::kSse42);
#endif
#if defined(__AVX__)
  Set(used, BuildFeature::kAvx);
#endif
#if defined(__AVX2__)
  Set(used, BuildFeature::kAvx2);
#endif
#if defined(__FMA__)
  Set(used, BuildFeature::kFma);
#endif
#if defined(__BMI2__)
  Set(used, BuildFeature::kBmi2);
#endif
#if defined(__AVX512F__)
  Set(used, BuildFeature::kAvx512F);
#endif
#if defined(__AVX512BW__)
  Set(used, BuildFeature::kAvx512Bw);
#endif
#if defined(__AVX512VNNI__)
  Set(used, BuildFeature::kAvx512Vnni);
#endif
#elif defined(__aarch64__)
#if defined(__ARM_FEATURE_ATOMICS)
  Set(used, BuildFeature::kAtomics);
#endif
#if defined(__ARM_FEATURE_DOTPROD)
  Set(used, BuildFeature::kDotProd);
#endif
#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
  Set(used, BuildFeature::kHalf);
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
  Set(used, BuildFeature::kI8mm);
#endif
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  Set(used, BuildFeature::kBf16);
#endif
#if defined(__ARM_FEATURE_SVE)
  Set(used, BuildFeature::kSve);
#endif
#if defined(__ARM_FEATURE_SVE2)
  Set(used, BuildFeature::kSve2);
#endif
#endif
  return used;
}

}  // namespace

constinit const FeatureSet kUsedByBuild = UsedByBuild();

}  // namespace baton
