#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace baton {

enum class QuantizeFormat {
  kFourBits,  // integers of 4 bits with scales for groups of 128 inputs (64 or 32, if they must)
  kFp8,       // FP8 (E4M3) with scales for blocks of 128 x 128
};

struct QuantizeReport {
  size_t matrices = 0;    // that were quantised
  size_t bytes_read = 0;  // of all tensors
  size_t bytes_written = 0;
  std::vector<std::string> kept = {};  // matrices of linear layers that stay as they are
};

// Writes a quantised copy of the Hugging Face directory `from` into the new directory `to`, in the
// layout of compressed-tensors: the weights of linear layers, but for those of routers, output
// heads and embeddings, and for experts that are all in one tensor. config.json is written last, so
// that a copy that is not complete is no model. Errors: AlreadyExists when `to` is not empty;
// InvalidArgument when the model is quantised, or naming a tensor with a weight that is not finite;
// those of OpenSafetensorsDirectory and of files that are written.
StatusOr<QuantizeReport> QuantizeCheckpoint(const std::string& from,
                                            const std::string& to,
                                            QuantizeFormat format);

}  // namespace baton
