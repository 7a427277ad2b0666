#include "tests/unit/model/gguf_writer.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kAlignment = 32;
constexpr uint32_t kArray = 9;

void AppendString(std::vector<std::byte>& to, std::string_view text) {
  AppendBytes(to, uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class T>
std::vector<std::byte> ArrayPayload(uint32_t type, std::span<const T> values) {
  std::vector<std::byte> payload;
  AppendBytes(payload, type);
  AppendBytes(payload, uint64_t{values.size()});
  for (const T& value : values) AppendBytes(payload, value);
  return payload;
}

}  // namespace

uint32_t GgmlType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kBF16:
      return 30;
    case DType::kMxfp4:
      return 39;
    case DType::kFp8:
    case DType::kU4:
    case DType::kI8:
    case DType::kFp4:
      break;  // GGUF has no such types
  }
  BATON_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

void GgufWriter::SetRaw(std::string_view key, uint32_t type, std::span<const std::byte> payload) {
  AppendString(metadata_, key);
  AppendBytes(metadata_, type);
  metadata_.insert(metadata_.end(), payload.begin(), payload.end());
  ++keys_;
}

void GgufWriter::SetString(std::string_view key, std::string_view value) {
  std::vector<std::byte> payload;
  AppendString(payload, value);
  SetRaw(key, 8, payload);
}

void GgufWriter::SetStrings(std::string_view key, std::span<const std::string> values) {
  std::vector<std::byte> payload;
  AppendBytes(payload, uint32_t{8});
  AppendBytes(payload, uint64_t{values.size()});
  for (const std::string& value : values) AppendString(payload, value);
  SetRaw(key, kArray, payload);
}

void GgufWriter::SetInt32s(std::string_view key, std::span<const int32_t> values) {
  SetRaw(key, kArray, ArrayPayload(5, values));
}

void GgufWriter::SetFloats(std::string_view key, std::span<const float> values) {
  SetRaw(key, kArray, ArrayPayload(6, values));
}

void GgufWriter::AddTensor(std::string_view name,
                           DType dtype,
                           std::span<const int64_t> shape,
                           std::span<const std::byte> bytes) {
  tensors_.push_back({std::string(name),
                      GgmlType(dtype),
                      {shape.begin(), shape.end()},
                      {bytes.begin(), bytes.end()}});
}

std::vector<std::byte> GgufWriter::Finish(uint32_t version) const {
  std::vector<std::byte> file;
  AppendBytes(file, uint32_t{0x46554747});
  AppendBytes(file, version);
  AppendBytes(file, uint64_t{tensors_.size()});
  AppendBytes(file, keys_);
  file.insert(file.end(), metadata_.begin(), metadata_.end());
  uint64_t offset = 0;
  const auto padded = [](size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; };
  for (const Entry& tensor : tensors_) {
    AppendString(file, tensor.name);
    AppendBytes(file, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) AppendBytes(file, tensor.shape[i - 1]);
    AppendBytes(file, tensor.type);
    AppendBytes(file, offset);
    offset += padded(tensor.bytes.size());
  }
  for (const Entry& tensor : tensors_) {
    file.resize(padded(file.size()));
    file.insert(file.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  return file;
}

std::vector<GgufWriter> GgufWriter::Split(uint32_t count) const {
  std::vector<GgufWriter> parts(count);
  parts.front().metadata_ = metadata_;
  parts.front().keys_ = keys_;
  for (uint32_t i = 0; i < count; ++i) {
    parts[i].SetUint32("split.no", i);
    parts[i].SetUint32("split.count", count);
    parts[i].SetUint32("split.tensors.count", static_cast<uint32_t>(tensors_.size()));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    parts[i * count / tensors_.size()].tensors_.push_back(tensors_[i]);
  }
  return parts;
}

}  // namespace baton
