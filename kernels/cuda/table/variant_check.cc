#include "kernels/cuda/table/variant_check.h"

#include <string>

#include <fmt/format.h>

namespace baton::cuda {

Status CheckVariants(std::span<const OpVariant> variants) {
  if (variants.empty()) return OkStatus();
  std::string lacking;
  for (const OpVariant variant : variants) {
    lacking += fmt::format("{}{}", lacking.empty() ? "" : "; ", Describe(variant));
  }
  return MakeStatus(StatusCode::kUnimplemented,
                    "the CUDA backend does not have what the model needs: {}; the CPU backend does "
                    "(engine.device: cpu)",
                    lacking);
}

}  // namespace baton::cuda
