#include "common/model/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/check.h"

namespace baton {

SafetensorsWriter::SafetensorsWriter(std::string path, std::ofstream file)
    : path_(std::move(path)), file_(std::move(file)) {}

StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                      const std::vector<TensorPlan>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t at = 0;
  for (const TensorPlan& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the tensors begin at a multiple of 8
  SafetensorsWriter writer(path, std::ofstream(path, std::ios::binary | std::ios::trunc));
  const uint64_t length = text.size();
  writer.missing_ = at;
  writer.file_.write(reinterpret_cast<const char*>(&length), sizeof(length));
  writer.file_.write(text.data(), static_cast<std::streamsize>(text.size()));
  BATON_RETURN_IF_ERROR(writer.Check());
  return writer;
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  BATON_CHECK(bytes.size() <= missing_,
              "{} bytes more than the header of {}",
              bytes.size() - missing_,
              path_);
  missing_ -= bytes.size();
  file_.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  return Check();
}

Status SafetensorsWriter::Finish() {
  BATON_CHECK(missing_ == 0, "{} bytes of {} are missing", missing_, path_);
  file_.flush();
  return Check();
}

Status SafetensorsWriter::Check() const {
  if (file_.good()) return OkStatus();
  return MakeStatus(
      StatusCode::kUnavailable, "{}: cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace baton
