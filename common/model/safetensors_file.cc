#include "common/model/safetensors_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <nlohmann/json.hpp>

#include "common/model/byte_reader.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMostIndexBytes = size_t{64} << 20;
constexpr size_t kMostDimensions = 8;

std::optional<DType> TensorType(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

// A JSON array of at most `most` numbers, none negative or over 2⁶².
std::optional<std::vector<int64_t>> Numbers(const Json& json, size_t most) {
  if (!json.is_array() || json.size() > most) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& number : json) {
    if (!number.is_number_unsigned()) return std::nullopt;
    const auto value = number.get<uint64_t>();
    if (value > uint64_t{1} << 62) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(value));
  }
  return numbers;
}

StatusOr<FileTensor> ReadTensor(const std::string& file,
                                const std::string& name,
                                const Json& entry,
                                std::span<const std::byte> data) {
  const std::string what = fmt::format("{}: tensor {}", file, name);
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return InvalidArgument("{}: needs dtype, shape and data_offsets", what);
  }
  FileTensor tensor;
  tensor.name = name;
  tensor.file = file;
  const auto& type = entry["dtype"].get_ref<const std::string&>();
  const std::optional<DType> dtype = TensorType(type);
  if (!dtype) {
    return InvalidArgument("{}: dtype {} is not supported; F32, F16 and BF16 are", what, type);
  }
  tensor.dtype = *dtype;
  auto shape = Numbers(entry["shape"], kMostDimensions);
  const auto offsets = Numbers(entry["data_offsets"], 2);
  if (!shape) {
    return InvalidArgument("{}: shape must be at most {} numbers", what, kMostDimensions);
  }
  if (!offsets || offsets->size() != 2) {
    return InvalidArgument("{}: data_offsets must be [begin, end]", what);
  }
  tensor.shape = std::move(*shape);
  BATON_ASSIGN_OR_RETURN(const size_t size, TensorBytes(tensor.dtype, tensor.shape, what));
  const auto begin = static_cast<size_t>((*offsets)[0]);
  const auto end = static_cast<size_t>((*offsets)[1]);
  if (begin > end || end > data.size()) {
    return InvalidArgument("{}: data_offsets [{}, {}] reach beyond the {} bytes of data",
                           what,
                           begin,
                           end,
                           data.size());
  }
  if (end - begin != size) {
    return InvalidArgument("{}: data_offsets [{}, {}] hold {} bytes, but {} {} takes {}",
                           what,
                           begin,
                           end,
                           end - begin,
                           type,
                           ShapeText(tensor.shape),
                           size);
  }
  tensor.bytes = data.subspan(begin, size);
  return tensor;
}

// Tensors in the order of their bytes; they must cover `data` exactly and be aligned.
Status CheckPlacement(const std::string& file,
                      std::vector<FileTensor>& tensors,
                      size_t data_start,
                      std::span<const std::byte> data) {
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return a.bytes.data() < b.bytes.data();
  });
  const std::byte* next = data.data();
  for (const FileTensor& tensor : tensors) {
    if (tensor.bytes.data() != next) {
      return InvalidArgument("{}: tensor {} begins at byte {} of the data; it must begin at {}",
                             file,
                             tensor.name,
                             tensor.bytes.data() - data.data(),
                             next - data.data());
    }
    const size_t at = data_start + static_cast<size_t>(next - data.data());
    if (at % ShapeOf(tensor.dtype).bytes != 0) {
      return InvalidArgument(
          "{}: tensor {} begins at byte {}, which is no multiple of the {} "
          "bytes of a {}",
          file,
          tensor.name,
          at,
          ShapeOf(tensor.dtype).bytes,
          Name(tensor.dtype));
    }
    next += tensor.bytes.size();
  }
  if (next != data.data() + data.size()) {
    return InvalidArgument(
        "{}: the last {} bytes belong to no tensor", file, data.data() + data.size() - next);
  }
  return OkStatus();
}

// The files that an index names, each with the tensors it should hold.
StatusOr<std::map<std::string, std::set<std::string>>> ReadIndex(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostIndexBytes));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgument("{}: must be a JSON object with an object weight_map", path);
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return InvalidArgument("{}: {} must name a file", path, tensor);
    const auto& name = file.get_ref<const std::string&>();
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return InvalidArgument(
          "{}: {} is in \"{}\", which is not a plain file name in the same directory",
          path,
          tensor,
          name);
    }
    files[name].insert(tensor);
  }
  if (files.empty()) return InvalidArgument("{}: weight_map is empty", path);
  return files;
}

}  // namespace

StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  auto held = std::make_unique<MappedFile>(std::move(mapping));
  BATON_ASSIGN_OR_RETURN(auto file, Parse(path, held->bytes()));
  file->mapping_ = std::move(held);
  return file;
}

StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Parse(
    std::string name, std::span<const std::byte> bytes) {
  ByteReader reader(name, bytes);
  const auto length = reader.Read<uint64_t>("header length");
  if (length > kMostHeaderBytes) {
    return InvalidArgument(
        "{}: header of {} bytes; at most {} are allowed", name, length, kMostHeaderBytes);
  }
  const auto header = reader.ReadBytes(length, "header");
  BATON_RETURN_IF_ERROR(reader.status());
  const auto* text = reinterpret_cast<const char*>(header.data());
  const Json json = Json::parse(text, text + header.size(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("{}: the header is not a JSON object", name);

  const auto data = bytes.subspan(reader.position());
  std::vector<FileTensor> tensors;
  for (const auto& [key, entry] : json.items()) {
    if (key == "__metadata__") continue;
    BATON_ASSIGN_OR_RETURN(FileTensor tensor, ReadTensor(name, key, entry, data));
    tensors.push_back(std::move(tensor));
  }
  BATON_RETURN_IF_ERROR(CheckPlacement(name, tensors, reader.position(), data));
  return std::unique_ptr<SafetensorsFile>(new SafetensorsFile(std::move(name), std::move(tensors)));
}

StatusOr<std::vector<std::unique_ptr<SafetensorsFile>>> OpenSafetensorsDirectory(
    const std::string& directory) {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  const std::string index = directory + "/model.safetensors.index.json";
  std::error_code ignored;
  if (!std::filesystem::exists(index, ignored)) {
    BATON_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(directory + "/model.safetensors"));
    files.push_back(std::move(file));
    return files;
  }
  BATON_ASSIGN_OR_RETURN(const auto wanted, ReadIndex(index));
  for (const auto& [name, tensors] : wanted) {
    BATON_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(directory + "/" + name));
    absl::flat_hash_set<std::string_view> held;
    for (const FileTensor& tensor : file->tensors()) held.insert(tensor.name);
    for (const std::string& tensor : tensors) {
      if (!held.contains(tensor)) {
        return InvalidArgument("{}: tensor {} is not in {}", index, tensor, name);
      }
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace baton
