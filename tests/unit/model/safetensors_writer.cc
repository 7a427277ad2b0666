#include "tests/unit/model/safetensors_writer.h"

#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/model/safetensors_directory.h"

namespace baton {
namespace {

std::string_view TypeInFile(const HeldTensor& tensor) {
  if (!tensor.other_type.empty()) return tensor.other_type;
  switch (tensor.dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kFp8:
      return "F8_E4M3";
    case DType::kI8:
      return "I8";
    default:
      BATON_CHECK(false, "safetensors files have no {}", Name(tensor.dtype));
  }
}

}  // namespace

std::string SafetensorsFileOf(const HeldTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    header[name] = {{"dtype", TypeInFile(tensor)},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + text + data;
}

HeldTensors TensorsIn(const std::string& path) {
  const auto opened = OpenSafetensorsDirectory(path);
  BATON_CHECK(opened.ok(), "{}", Message(opened.status()));
  HeldTensors tensors;
  for (const FileTensor* tensor : opened->tensors) {
    tensors[tensor->name] = {tensor->dtype,
                             tensor->shape,
                             {tensor->bytes.begin(), tensor->bytes.end()},
                             tensor->other_type};
  }
  return tensors;
}

std::string IndexOf(const std::map<std::string, HeldTensors>& files) {
  nlohmann::json map = nlohmann::json::object();
  for (const auto& [file, tensors] : files) {
    for (const auto& [name, tensor] : tensors) map[name] = file;
  }
  return nlohmann::json{{"weight_map", map}}.dump();
}

}  // namespace baton
