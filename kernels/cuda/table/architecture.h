#pragma once

#include <cstdint>
#include <string_view>

namespace baton::cuda {

// What the choice among kernels depends on: a GPU, and the code of this build that runs on it.
// Architectures are compute capabilities: 90 for sm_90.
struct DeviceProperties {
  int32_t architecture = 0;
  int32_t code_architecture = 0;  // FindLoadedCode
  int32_t sm_count = 0;
  int32_t block_shared_bytes = 0;  // the most shared memory of a thread block
  int64_t l2_bytes = 0;
  // Only kernels of KernelFamily::kPortable and kFp8 may run (engine.kernels).
  bool portable = false;

  bool operator==(const DeviceProperties&) const = default;
};

inline constexpr int32_t kOldestArchitecture = 80;
inline constexpr int32_t kFp8Architecture = 89;
inline constexpr int32_t kHopperArchitecture = 90;

// Kernels by what they need of a GPU. Every op has a kernel of the first family.
enum class KernelFamily : uint8_t {
  kPortable,  // sm_80's instructions, and kPortableSharedBytes (launch.cuh)
  kFp8,       // tensor cores that multiply FP8: sm_89 and newer
  kClusters,  // clusters of thread blocks: sm_90 and newer
  kHopper,    // TMA and wgmma: sm_90a, and no newer architecture
};

// The only comparison of architectures on which a choice among kernels depends.
bool MayRun(KernelFamily family, const DeviceProperties& device);

// What a kernel of the family needs, for messages: "sm_90 or newer".
std::string_view Needs(KernelFamily family);

// Whether FP8 weights and FP8 KV caches may be used: sm_89 and newer.
bool SupportsFp8(const DeviceProperties& device);

}  // namespace baton::cuda
