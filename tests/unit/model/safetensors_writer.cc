#include "tests/unit/model/safetensors_writer.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/model/safetensors_directory.h"

namespace baton {

std::string SafetensorsFileOf(const HeldTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    const bool other = !tensor.other_type.empty();
    header[name] = {
        {"dtype", other ? tensor.other_type : std::string(SafetensorsTypeName(tensor.dtype))},
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
