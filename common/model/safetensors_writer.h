#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace baton {

// A tensor of a safetensors file that is written.
struct TensorPlan {
  std::string name;
  std::string type;  // the format's name: F32, BF16, I32, F8_E4M3, …
  std::vector<int64_t> shape;
  size_t bytes = 0;
};

// Writes a safetensors file, tensor by tensor, so that only one of them is in memory.
class SafetensorsWriter {
 public:
  // Creates the file and writes its header. Errors: Unavailable naming the path and the reason.
  static StatusOr<SafetensorsWriter> Create(const std::string& path,
                                            const std::vector<TensorPlan>& tensors);
  // Writes the bytes of the next tensor, all of them in one or more calls. Errors: as above.
  Status Append(std::span<const std::byte> bytes);
  // Writes what is buffered. The file is complete when all tensors have been appended.
  Status Finish();

 private:
  SafetensorsWriter(std::string path, std::ofstream file);
  Status Check() const;

  std::string path_;
  std::ofstream file_;
  size_t missing_ = 0;  // bytes that are still to be appended
};

}  // namespace baton
