#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/safetensors_file.h"
#include "kernels/dequantize.h"

// Reads any bytes as a safetensors file: the header, and every number of every tensor with a known
// type.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const auto file =
      SafetensorsFile::Parse("fuzz.safetensors", std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  for (const FileTensor& tensor : (*file)->tensors()) {
    if (!tensor.other_type.empty()) continue;  // a type that Baton does not read
    std::vector<float> values(tensor.bytes.size() / ShapeOf(tensor.dtype).bytes);
    Dequantize(tensor.dtype, tensor.bytes, values);
  }
  return 0;
}
