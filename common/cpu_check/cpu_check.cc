// Compiled for the architecture's first processors, whatever the flags of the build are, because it
// runs before anything else of a program.
#include <unistd.h>

#include <cstring>

#include "common/cpu_check/build_features.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace baton {
namespace {

#if defined(__x86_64__)
constexpr const char* kNames[] = {
    "SSE4.2", "AVX", "AVX2", "FMA", "BMI2", "AVX-512 F", "AVX-512 BW", "AVX-512 VNNI"};

FeatureSet OfProcessor() {
  __builtin_cpu_init();
  return {{__builtin_cpu_supports("sse4.2") != 0,
           __builtin_cpu_supports("avx") != 0,
           __builtin_cpu_supports("avx2") != 0,
           __builtin_cpu_supports("fma") != 0,
           __builtin_cpu_supports("bmi2") != 0,
           __builtin_cpu_supports("avx512f") != 0,
           __builtin_cpu_supports("avx512bw") != 0,
           __builtin_cpu_supports("avx512vnni") != 0}};
}
#elif defined(__aarch64__)
constexpr const char* kNames[] = {
    "LSE atomics", "dot products", "FP16 arithmetic", "I8MM", "BF16", "SVE", "SVE2"};

FeatureSet OfProcessor() {
  const auto first = ::getauxval(AT_HWCAP);
  const auto second = ::getauxval(AT_HWCAP2);
  return {{(first & HWCAP_ATOMICS) != 0,
           (first & HWCAP_ASIMDDP) != 0,
           (first & HWCAP_ASIMDHP) != 0,
           (second & HWCAP2_I8MM) != 0,
           (second & HWCAP2_BF16) != 0,
           (first & HWCAP_SVE) != 0,
           (second & HWCAP2_SVE2) != 0}};
}
#else
constexpr const char* kNames[] = {""};

FeatureSet OfProcessor() {
  return {};
}
#endif

void Print(const char* text) {
  // Nothing else can be done about an error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Before every other constructor of the program (101 is the first priority for programs).
[[gnu::constructor(101)]] void CheckProcessor() {
  RequireFeatures(kUsedByBuild, OfProcessor());
}

}  // namespace

void RequireFeatures(const FeatureSet& used, const FeatureSet& processor) {
  for (size_t i = 0; i < kBuildFeatures; ++i) {
    if (!used.has[i] || processor.has[i]) continue;
    Print("this program was compiled for processors with ");
    Print(kNames[i]);
    Print(", which this one does not have: compile it without -march, or run it elsewhere\n");
    ::_exit(1);
  }
}

}  // namespace baton
