#pragma once

#include <cstdint>

#include "kernels/cuda/table/kernel_request.h"
#include "kernels/dtype.h"
#include "kernels/latent_ops.h"

// The requests of multi-head latent attention to the kernel table.
namespace baton::cuda {

// The sizes of KernelId::kTiledLatents, those of DeepSeek-V2 and its successors.
inline constexpr int32_t kTiledRank = 512;
inline constexpr int32_t kTiledWidth = 576;
// KernelId::kHopperLatents: the latents of a tile, and of these the ones that are loaded at once. A
// block has a multiple of the latter.
inline constexpr int32_t kHopperLatentTokens = 48;
inline constexpr int32_t kHopperLatentGroup = 8;
// The largest latent of KernelId::kPortableLatents, and the most heads of KernelId::kHeadGemm.
inline constexpr int32_t kMaxLatentNumbers = 512;
inline constexpr int32_t kMaxLatentHeads = 256;

// Attention to latents in a cache of type `kv` with blocks of `block_tokens` tokens.
KernelRequest LatentRequest(const LatentShape& shape,
                            DType kv,
                            int32_t block_tokens,
                            bool deterministic);
// LatentOps::AbsorbQueries and ExpandValues.
KernelRequest HeadGemmRequest(const LatentShape& shape, bool deterministic);

}  // namespace baton::cuda
