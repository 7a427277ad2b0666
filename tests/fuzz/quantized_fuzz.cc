#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/config_fields.h"
#include "common/model/quantization_config.h"
#include "common/model/quantized_tensors.h"
#include "common/model/read_quantized.h"
#include "common/model/safetensors_file.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

constexpr QuantizedPlace kPlace{.rows = 16, .cols = 64};

// Reads the matrix of these tensors, as a worker does: first only their shapes.
void Read(const QuantizedTensors& tensors, const QuantizationConfig& quantization) {
  if (!ReadQuantized(tensors, quantization, kPlace, nullptr).ok()) return;
  QuantizedMemory memory;
  const auto matrix = ReadQuantized(tensors, quantization, kPlace, &memory);
  if (!matrix.ok()) return;
  std::vector<float> row(static_cast<size_t>(kPlace.cols));
  std::vector<int64_t> rows(static_cast<size_t>(kPlace.rows));
  std::iota(rows.begin(), rows.end(), 0);
  QuantizedMemory taken_memory;
  const HostMatrix taken = TakeQuantizedRows(*matrix, rows, taken_memory);
  for (const int64_t r : rows) {
    DequantizeRow(*matrix, r, row);
    DequantizeRow(taken, r, row);
  }
}

}  // namespace
}  // namespace baton

// A line with a configuration, then a safetensors file with the tensors of a quantised matrix q of
// 16 x 64.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const auto all = std::as_bytes(std::span(data, size));
  const size_t line =
      static_cast<size_t>(std::find(all.begin(), all.end(), std::byte{'\n'}) - all.begin());
  if (line == size) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), line);
  const auto fields = JsonFields::Parse("config.json", text);
  if (!fields.ok()) return 0;
  const auto quantization = ReadQuantization(**fields);
  if (!quantization.ok()) return 0;
  const auto file = SafetensorsFile::Parse("fuzz.safetensors", all.subspan(line + 1));
  if (!file.ok()) return 0;
  const auto lookup = [&](const std::string& name) -> const FileTensor* {
    const auto& tensors = (*file)->tensors();
    const auto found = std::ranges::find(tensors, name, &FileTensor::name);
    return found == tensors.end() ? nullptr : &*found;
  };
  const auto tensors = FindQuantized("q.weight", *quantization, lookup);
  if (tensors.ok() && tensors->has_value()) Read(**tensors, *quantization);
  return 0;
}
