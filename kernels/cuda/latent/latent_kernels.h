#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/latent/latent_ops.h"
#include "kernels/cuda/table/architecture.h"
#include "kernels/kv_view.h"

// The kernels of multi-head latent attention (LatentOps). An AttentionLaunch describes attention to
// latents as that of all query heads to one KV head of LatentShape::width() numbers; `out` is
// [rows][heads · rank].
namespace baton::cuda {

// Where the tokens of rows are in the cache: arrays of StepLayout.
struct RowPlaces {
  const int32_t* positions = nullptr;
  const int32_t* blocks = nullptr;
};

// Normalises and rotates the rows of op.kv in place, and writes them to their blocks.
cudaError_t LaunchWriteLatent(const WriteLatentOp& op,
                              const RowPlaces& places,
                              const KvView& kv,
                              cudaStream_t stream);

// The products of all heads. A result adds its products in ascending k, whatever the number of
// rows.
cudaError_t LaunchHeadGemm(const HeadGemmOp& op, cudaStream_t stream);

// The kernel with tensor cores (KernelId::kTiledLatents).
inline constexpr int32_t kTiledTokens = 64;  // latents in a tile

// The tile for `heads` heads: as few tiles of heads as fit, because each reads all latents.
LatentTile LatentTileFor(int32_t heads, const DeviceProperties& device);
// Call once for each device, before any graph capture.
cudaError_t PrepareTiledLatents(const DeviceProperties& device);
cudaError_t LaunchTiledLatents(const PortableWork& work,
                               const LatentTile& tile,
                               const AttentionLaunch& call);

// The kernel for Hopper (KernelId::kHopperLatents). Work tiles begin at multiples of
// kHopperLatentGroup positions.
inline constexpr int32_t kHopperLatentHeads = 64;  // heads of a thread block

cudaError_t PrepareHopperLatents();
cudaError_t LaunchHopperLatents(const PortableWork& work, const AttentionLaunch& call);

}  // namespace baton::cuda
