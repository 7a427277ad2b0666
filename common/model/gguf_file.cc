#include "common/model/gguf_file.h"

#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include <absl/container/flat_hash_set.h>

#include "common/model/byte_reader.h"
#include "common/model/ggml_types.h"
#include "common/model/gguf_split.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "weight files are read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kLargestAlignment = int64_t{1} << 20;
constexpr uint32_t kMaxDimensions = 4;
// The smallest tensor description and the smallest metadata value.
constexpr uint64_t kLeastTensorBytes = 32;
constexpr uint64_t kLeastValueBytes = 13;
constexpr uint64_t kMaxValues = 1 << 16;

// Value types of the metadata.
enum GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// The bytes of a scalar; 0 for strings, arrays and unknown types.
size_t ScalarBytes(uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

GgufValue ReadScalar(ByteReader& reader, uint32_t type, std::string_view what) {
  switch (type) {
    case kUint8:
      return int64_t{reader.Read<uint8_t>(what)};
    case kInt8:
      return int64_t{reader.Read<int8_t>(what)};
    case kUint16:
      return int64_t{reader.Read<uint16_t>(what)};
    case kInt16:
      return int64_t{reader.Read<int16_t>(what)};
    case kUint32:
      return int64_t{reader.Read<uint32_t>(what)};
    case kInt32:
      return int64_t{reader.Read<int32_t>(what)};
    case kInt64:
      return reader.Read<int64_t>(what);
    case kFloat32:
      return double{reader.Read<float>(what)};
    case kFloat64:
      return reader.Read<double>(what);
    case kBool:
      return reader.Read<uint8_t>(what) != 0;
    default:
      break;
  }
  const auto value = reader.Read<uint64_t>(what);
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    reader.Fail(InvalidArgument("{}: {} is {}, over 2^63 - 1", reader.file(), what, value));
  }
  return static_cast<int64_t>(value);
}

GgufValue ReadArray(ByteReader& reader, std::string_view what) {
  const auto type = reader.Read<uint32_t>(what);
  const auto count = reader.Read<uint64_t>(what);
  if (type == kString) {
    // A string takes at least the 8 bytes of its length. This bounds the memory reserved for
    // `count`.
    if (count > reader.remaining() / 8) {
      reader.Fail(InvalidArgument("{}: {} declares {} strings, but only {} bytes are left",
                                  reader.file(),
                                  what,
                                  count,
                                  reader.remaining()));
      return false;
    }
    std::vector<std::string_view> strings;
    strings.reserve(count);
    for (uint64_t i = 0; i < count && reader.ok(); ++i) strings.push_back(reader.ReadString(what));
    return strings;
  }
  const size_t size = ScalarBytes(type);
  if (size == 0) {
    reader.Fail(InvalidArgument(
        "{}: {} is an array of type {}; arrays of numbers, booleans and strings are supported",
        reader.file(),
        what,
        type));
    return false;
  }
  if (count > reader.remaining() / size) {
    reader.Fail(InvalidArgument("{}: {} declares {} elements of {} bytes, but {} bytes are left",
                                reader.file(),
                                what,
                                count,
                                size,
                                reader.remaining()));
    return false;
  }
  return GgufArray{type, count, reader.ReadBytes(count * size, what)};
}

GgufValue ReadValue(ByteReader& reader, std::string_view what) {
  const auto type = reader.Read<uint32_t>(what);
  if (type == kString) return reader.ReadString(what);
  if (type == kArray) return ReadArray(reader, what);
  if (ScalarBytes(type) == 0) {
    reader.Fail(InvalidArgument("{}: {} has the unknown value type {}", reader.file(), what, type));
  }
  return ReadScalar(reader, type, what);
}

// All elements of `array` as numbers of type T.
template <class T>
std::vector<T> Widen(const std::string& file, std::string_view key, const GgufArray& array) {
  ByteReader reader(file, array.bytes);
  std::vector<T> values;
  values.reserve(array.count);
  for (uint64_t i = 0; i < array.count; ++i) {
    const GgufValue value = ReadScalar(reader, array.type, key);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      values.push_back(static_cast<T>(*number));
    } else if (const auto* real = std::get_if<double>(&value)) {
      values.push_back(static_cast<T>(*real));
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      values.push_back(static_cast<T>(*flag));
    }
  }
  return values;
}

bool IsIntegerArray(const GgufArray& array) {
  return array.type != kFloat32 && array.type != kFloat64 && array.type != kBool &&
         array.type != kUint64;
}

// Reads `count` tensor descriptions; their bytes are not known yet.
Status ReadTensorHeaders(ByteReader& reader,
                         uint64_t count,
                         std::vector<FileTensor>& tensors,
                         std::vector<uint64_t>& offsets) {
  absl::flat_hash_set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    FileTensor tensor;
    tensor.file = reader.file();
    const std::string_view name = reader.ReadString("a tensor name");
    tensor.name = name;
    const auto dimensions = reader.Read<uint32_t>(name);
    if (dimensions < 1 || dimensions > kMaxDimensions) {
      reader.Fail(InvalidArgument("{}: tensor {} has {} dimensions; 1 to {} are allowed",
                                  reader.file(),
                                  name,
                                  dimensions,
                                  kMaxDimensions));
    }
    for (uint32_t d = 0; d < dimensions && reader.ok(); ++d) {
      tensor.shape.insert(tensor.shape.begin(), reader.Read<int64_t>(name));
    }
    const auto type = reader.Read<uint32_t>(name);
    offsets.push_back(reader.Read<uint64_t>(name));
    BATON_RETURN_IF_ERROR(reader.status());
    if (!names.insert(name).second) {
      return InvalidArgument("{}: tensor {} appears twice", reader.file(), name);
    }
    const std::optional<DType> dtype = TypeOfGgml(type);
    if (dtype) {
      tensor.dtype = *dtype;
    } else {
      tensor.other_type = NameOfGgmlType(type);
    }
    tensors.push_back(std::move(tensor));
  }
  return OkStatus();
}

}  // namespace

GgufFile::GgufFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(auto file, OpenPart(path));
  BATON_ASSIGN_OR_RETURN(file->other_parts_, OpenOtherParts(*file));
  for (const auto& other : file->other_parts_) {
    file->tensors_.insert(file->tensors_.end(), other->tensors_.begin(), other->tensors_.end());
  }
  return file;
}

StatusOr<std::unique_ptr<GgufFile>> GgufFile::OpenPart(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  auto held = std::make_unique<MappedFile>(std::move(mapping));
  BATON_ASSIGN_OR_RETURN(auto file, Parse(path, held->bytes()));
  file->mapping_ = std::move(held);
  return file;
}

StatusOr<std::unique_ptr<GgufFile>> GgufFile::Parse(std::string name,
                                                    std::span<const std::byte> bytes) {
  std::unique_ptr<GgufFile> file(new GgufFile(std::move(name), bytes));
  BATON_RETURN_IF_ERROR(file->ParseAll());
  return file;
}

Status GgufFile::ParseAll() {
  ByteReader reader(path_, bytes_);
  const auto magic = reader.Read<uint32_t>("magic");
  const auto version = reader.Read<uint32_t>("version");
  const auto tensor_count = reader.Read<uint64_t>("tensor count");
  const auto value_count = reader.Read<uint64_t>("metadata count");
  BATON_RETURN_IF_ERROR(reader.status());
  if (magic != kMagic) {
    return InvalidArgument("{} is not a GGUF file: it begins with {:#010x}", path_, magic);
  }
  if (version != 2 && version != 3) {
    return InvalidArgument(
        "{} has GGUF version {}; 2 and 3, little endian, are supported", path_, version);
  }
  if (tensor_count > reader.remaining() / kLeastTensorBytes ||
      value_count > reader.remaining() / kLeastValueBytes) {
    return InvalidArgument("{} declares {} tensors and {} metadata values in {} bytes",
                           path_,
                           tensor_count,
                           value_count,
                           reader.remaining());
  }
  if (tensor_count > kMaxTensors || value_count > kMaxValues) {
    return InvalidArgument(
        "{} has {} tensors and {} metadata values; at most {} and {} are allowed",
        path_,
        tensor_count,
        value_count,
        kMaxTensors,
        kMaxValues);
  }
  BATON_RETURN_IF_ERROR(ParseMetadata(reader, value_count));
  return ParseTensors(reader, tensor_count);
}

Status GgufFile::ParseMetadata(ByteReader& reader, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = reader.ReadString("a metadata key");
    GgufValue value = ReadValue(reader, key);
    BATON_RETURN_IF_ERROR(reader.status());
    if (!values_.try_emplace(std::string(key), std::move(value)).second) {
      return InvalidArgument("{}: metadata key {} appears twice", path_, key);
    }
  }
  return OkStatus();
}

Status GgufFile::ParseTensors(ByteReader& reader, uint64_t count) {
  int64_t alignment = kDefaultAlignment;
  if (Has("general.alignment")) {
    BATON_ASSIGN_OR_RETURN(alignment, Int("general.alignment"));
    if (alignment < 8 || alignment > kLargestAlignment || (alignment & (alignment - 1)) != 0) {
      return InvalidArgument("{}: general.alignment is {}; it must be a power of two from 8 to {}",
                             path_,
                             alignment,
                             kLargestAlignment);
    }
  }
  std::vector<uint64_t> offsets;
  BATON_RETURN_IF_ERROR(ReadTensorHeaders(reader, count, tensors_, offsets));

  const auto step = static_cast<size_t>(alignment);
  const size_t data_start = (reader.position() + step - 1) / step * step;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    FileTensor& tensor = tensors_[i];
    const std::string what = fmt::format("{}: tensor {}", path_, tensor.name);
    size_t size = 0;
    if (tensor.other_type.empty()) {
      BATON_ASSIGN_OR_RETURN(size, TensorBytes(tensor.dtype, tensor.shape, what));
    }
    const size_t held = bytes_.size() < data_start ? 0 : bytes_.size() - data_start;
    if (offsets[i] > held || size > held - offsets[i]) {
      return InvalidArgument("{}: {} bytes at offset {} reach beyond the {} bytes of tensor data",
                             what,
                             size,
                             offsets[i],
                             held);
    }
    if (offsets[i] % step != 0) {
      return InvalidArgument(
          "{}: offset {} is not a multiple of the alignment {}", what, offsets[i], alignment);
    }
    tensor.bytes = bytes_.subspan(data_start + offsets[i], size);
  }
  return OkStatus();
}

StatusOr<const GgufValue*> GgufFile::Find(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return MakeStatus(StatusCode::kNotFound, "{}: metadata key {} is missing", path_, key);
  }
  return &found->second;
}

Status GgufFile::WrongType(std::string_view key, std::string_view wanted) const {
  constexpr std::string_view kNames[] = {
      "a boolean", "an integer", "a float", "a string", "an array of strings", "an array"};
  const size_t index = values_.find(key)->second.index();
  return InvalidArgument(
      "{}: metadata key {} is {}; it must be {}", path_, key, kNames[index], wanted);
}

StatusOr<int64_t> GgufFile::Int(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (const auto* number = std::get_if<int64_t>(value)) return *number;
  return WrongType(key, "an integer");
}

StatusOr<double> GgufFile::Float(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  return WrongType(key, "a number");
}

StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return WrongType(key, "a boolean");
}

StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (const auto* text = std::get_if<std::string_view>(value)) return *text;
  return WrongType(key, "a string");
}

StatusOr<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (const auto* texts = std::get_if<std::vector<std::string_view>>(value)) return *texts;
  return WrongType(key, "an array of strings");
}

StatusOr<std::vector<int64_t>> GgufFile::Ints(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || !IsIntegerArray(*array)) return WrongType(key, "an array of integers");
  return Widen<int64_t>(path_, key, *array);
}

StatusOr<std::vector<bool>> GgufFile::Bools(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->type != kBool) return WrongType(key, "an array of booleans");
  return Widen<bool>(path_, key, *array);
}

StatusOr<std::vector<double>> GgufFile::Floats(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr || array->type == kBool) return WrongType(key, "an array of numbers");
  return Widen<double>(path_, key, *array);
}

}  // namespace baton
