#include "common/model/safetensors_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/model/byte_reader.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDimensions = 8;

constexpr std::pair<std::string_view, DType> kTypes[] = {{"F32", DType::kF32},
                                                         {"F16", DType::kF16},
                                                         {"BF16", DType::kBF16},
                                                         {"F8_E4M3", DType::kFp8},
                                                         {"I8", DType::kI8}};

std::optional<DType> TensorType(std::string_view name) {
  for (const auto& [type, dtype] : kTypes) {
    if (type == name) return dtype;
  }
  return std::nullopt;
}

// A tensor's entry in the header.
struct TensorEntry {
  std::string name;
  std::optional<std::string> type;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;
};

// The size in bytes of the tensor; nullopt for a type whose size is not known here.
StatusOr<std::optional<size_t>> SizeOf(const TensorEntry& entry,
                                       std::optional<DType> dtype,
                                       const std::string& what) {
  if (!dtype) return std::optional<size_t>();
  if (std::ranges::count(*entry.shape, 0) > 0) return std::optional<size_t>(0);
  BATON_ASSIGN_OR_RETURN(const size_t size, TensorBytes(*dtype, *entry.shape, what));
  return std::optional<size_t>(size);
}

StatusOr<FileTensor> ReadTensor(const std::string& file,
                                TensorEntry entry,
                                std::span<const std::byte> data) {
  const std::string what = fmt::format("{}: tensor {}", file, entry.name);
  if (!entry.type || !entry.shape || !entry.offsets) {
    return InvalidArgument("{}: needs dtype, shape and data_offsets", what);
  }
  if (entry.offsets->size() != 2) {
    return InvalidArgument("{}: data_offsets must be [begin, end]", what);
  }
  const std::optional<DType> dtype = TensorType(*entry.type);
  BATON_ASSIGN_OR_RETURN(const std::optional<size_t> size, SizeOf(entry, dtype, what));
  const auto begin = static_cast<size_t>((*entry.offsets)[0]);
  const auto end = static_cast<size_t>((*entry.offsets)[1]);
  if (begin > end || end > data.size()) {
    return InvalidArgument("{}: data_offsets [{}, {}] reach beyond the {} bytes of data",
                           what,
                           begin,
                           end,
                           data.size());
  }
  if (size && end - begin != *size) {
    return InvalidArgument("{}: data_offsets [{}, {}] hold {} bytes, but {} {} takes {}",
                           what,
                           begin,
                           end,
                           end - begin,
                           *entry.type,
                           ShapeText(*entry.shape),
                           *size);
  }
  FileTensor tensor;
  tensor.name = std::move(entry.name);
  tensor.file = file;
  tensor.shape = *std::move(entry.shape);
  tensor.dtype = dtype.value_or(tensor.dtype);
  if (!dtype) tensor.other_type = *std::move(entry.type);
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

// Parses a header event by event (SAX), because a JSON tree would take several times the memory of
// the header. Every method returns whether to continue.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(const std::string& file, std::string_view header, std::span<const std::byte> data)
      : file_(file), header_(header), data_(data) {}

  const Status& status() const { return status_; }
  std::vector<FileTensor> TakeTensors() { return std::move(tensors_); }

  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }
  bool number_float(double, const std::string&) override { return Other(); }
  bool number_integer(int64_t) override { return Other(); }
  bool binary(Json::binary_t&) override { return Other(); }

  bool number_unsigned(uint64_t value) override {
    if (list_ == nullptr) return Other();
    if (value > uint64_t{1} << 62 || list_->size() == kMaxDimensions) return NoList();
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ != kInTensor || member_ != "dtype") return Other();
    entry_.type = std::move(text);
    return true;
  }

  bool start_object(size_t) override {
    if (list_ != nullptr || InKnownMember()) return Other();
    ++depth_;
    return true;
  }

  bool end_object() override {
    if (depth_-- != kInTensor || in_metadata_) return true;
    auto tensor = ReadTensor(file_, std::exchange(entry_, {}), data_);
    if (!tensor.ok()) return Fail(tensor.status());
    tensors_.push_back(*std::move(tensor));
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ < kInTensor && !Other()) return false;
    if (list_ != nullptr) return NoList();
    if (InKnownMember()) {
      if (member_ == "dtype") return Other();
      list_ = &(member_ == "shape" ? entry_.shape : entry_.offsets).emplace();
    }
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    list_ = nullptr;
    return true;
  }

  bool key(std::string& name) override {
    if (depth_ == kInTensor) member_ = name;
    if (depth_ != kInHeader) return true;
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) return true;
    if (tensors_.size() == kMaxTensors) {
      return Fail(
          InvalidArgument("{} has more than {} tensors, which is the limit", file_, kMaxTensors));
    }
    if (!names_.insert(name).second) {
      return Fail(InvalidArgument("{}: tensor {} appears twice", file_, name));
    }
    entry_.name = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return Fail(JsonSyntaxError(file_ + ": the header", header_, position, error));
  }

 private:
  // Nesting depths: outside the header, in the header object, in the object of a tensor or of the
  // metadata.
  static constexpr int kOutside = 0;
  static constexpr int kInHeader = 1;
  static constexpr int kInTensor = 2;

  bool InKnownMember() const {
    return depth_ == kInTensor && !in_metadata_ &&
           (member_ == "dtype" || member_ == "shape" || member_ == "data_offsets");
  }

  bool Fail(Status status) {
    status_ = std::move(status);
    return false;
  }

  bool NoList() {
    if (member_ == "shape") {
      return Fail(InvalidArgument(
          "{}: tensor {}: shape must be at most {} numbers", file_, entry_.name, kMaxDimensions));
    }
    return Fail(
        InvalidArgument("{}: tensor {}: data_offsets must be [begin, end]", file_, entry_.name));
  }

  // Handles a value that does not describe a tensor: an error, except in an unknown member.
  bool Other() {
    if (depth_ == kOutside) {
      return Fail(InvalidArgument("{}: the header is not a JSON object", file_));
    }
    if (list_ != nullptr || (InKnownMember() && member_ != "dtype")) return NoList();
    if ((depth_ == kInHeader && !in_metadata_) || InKnownMember()) {
      return Fail(InvalidArgument(
          "{}: tensor {}: needs dtype, shape and data_offsets", file_, entry_.name));
    }
    return true;
  }

  const std::string& file_;
  const std::string_view header_;
  const std::span<const std::byte> data_;
  Status status_;
  std::vector<FileTensor> tensors_;
  absl::flat_hash_set<std::string> names_;
  int64_t depth_ = kOutside;
  bool in_metadata_ = false;
  std::string member_;  // the current member of the tensor
  TensorEntry entry_;
  std::vector<int64_t>* list_ = nullptr;  // the list of entry_ that is being read, or null
};

// Sorts the tensors in the order of their bytes. They must cover `data` exactly.
Status CheckPlacement(const std::string& file,
                      std::vector<FileTensor>& tensors,
                      std::span<const std::byte> data) {
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
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
    next += tensor.bytes.size();
  }
  if (next != data.data() + data.size()) {
    return InvalidArgument(
        "{}: the last {} bytes do not belong to a tensor", file, data.data() + data.size() - next);
  }
  return OkStatus();
}

}  // namespace

std::string_view SafetensorsTypeName(DType dtype) {
  for (const auto& [type, of_type] : kTypes) {
    if (of_type == dtype) return type;
  }
  BATON_CHECK(false, "safetensors files have no {}", Name(dtype));
}

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
  if (length > kMaxHeaderBytes) {
    return InvalidArgument(
        "{}: header of {} bytes; at most {} are allowed", name, length, kMaxHeaderBytes);
  }
  const auto header = reader.ReadBytes(length, "header");
  BATON_RETURN_IF_ERROR(reader.status());
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  const auto data = bytes.subspan(reader.position());
  HeaderReader entries(name, text, data);
  if (!Json::sax_parse(text, &entries)) return entries.status();
  std::vector<FileTensor> tensors = entries.TakeTensors();
  BATON_RETURN_IF_ERROR(CheckPlacement(name, tensors, data));
  return std::unique_ptr<SafetensorsFile>(new SafetensorsFile(std::move(name), std::move(tensors)));
}

}  // namespace baton
