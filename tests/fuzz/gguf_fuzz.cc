#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/gguf_config.h"
#include "common/model/gguf_file.h"
#include "kernels/dequantize.h"

// Reads any bytes as a GGUF file: all metadata, the model's spec, and every number of every tensor
// with a known type.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const auto file = GgufFile::Parse("fuzz.gguf", std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  (void)SpecFromGguf(**file);
  for (const FileTensor& tensor : (*file)->tensors()) {
    if (!tensor.other_type.empty()) continue;  // a type that Baton does not read
    const BlockShape block = ShapeOf(tensor.dtype);
    std::vector<float> values(tensor.bytes.size() / block.bytes * block.elements);
    Dequantize(tensor.dtype, tensor.bytes, values);
  }
  return 0;
}
