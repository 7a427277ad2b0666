#include "common/model/read_quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "common/model/unpack_weights.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

using Layout = QuantizedTensors::Layout;

constexpr int64_t kMxGroup = 32;

int64_t Ceil(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The tensor must have this type and one of these shapes.
Status Expect(const FileTensor& tensor,
              std::string_view type,
              std::initializer_list<std::vector<int64_t>> shapes) {
  if (TypeName(tensor) != type) {
    return InvalidArgument(
        "{} is of {}; expected {}", NameForErrors(tensor), TypeName(tensor), type);
  }
  if (std::ranges::find(shapes, tensor.shape) != shapes.end()) return OkStatus();
  return InvalidArgument("{} has shape {}; expected {}",
                         NameForErrors(tensor),
                         ShapeText(tensor.shape),
                         ShapeText(*shapes.begin()));
}

// Rows of numbers of less than a byte must be whole words; AWQ packs outputs, too.
Status CheckWords(const QuantizedTensors& tensors, const QuantizedPlace& place) {
  constexpr int64_t kInWord = 8;
  const auto check = [&](int64_t count, std::string_view what) {
    if (count % kInWord == 0) return OkStatus();
    return InvalidArgument("{} is of {} {}; they must be a multiple of {}",
                           NameForErrors(*tensors.numbers),
                           count,
                           what,
                           kInWord);
  };
  if (tensors.layout == Layout::kNumbers) return OkStatus();
  if (tensors.layout == Layout::kAwq) BATON_RETURN_IF_ERROR(check(place.rows, "outputs"));
  return check(place.cols, "inputs");
}

// Floats of a tensor of 16 or 32 bits, or of FP8.
bool IsFloatTensor(const FileTensor& tensor) {
  return tensor.other_type.empty() && ShapeOf(tensor.dtype).elements == 1 &&
         tensor.dtype != DType::kI8;
}

ScaleType ScaleTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return ScaleType::kF16;
    case DType::kBF16:
      return ScaleType::kBF16;
    case DType::kFp8:
      return ScaleType::kFp8;
    default:
      return ScaleType::kF32;
  }
}

Status CheckScales(const FileTensor& tensor, std::span<const float> scales) {
  for (const float scale : scales) {
    if (std::isfinite(scale)) continue;
    return InvalidArgument(
        "{} has a scale of {}; all must be finite", NameForErrors(tensor), scale);
  }
  return OkStatus();
}

// A matrix in the making: the checks and copies that layouts share.
class Reading {
 public:
  Reading(const QuantizedTensors& tensors, const QuantizedPlace& place, QuantizedMemory* memory)
      : tensors_(tensors), place_(place), memory_(memory) {
    matrix_.rows = place.rows;
    matrix_.cols = place.cols;
    matrix_.data = tensors.numbers->bytes.data();
  }

  int64_t rows() const { return place_.rows; }
  int64_t cols() const { return place_.cols; }
  const QuantizedTensors& tensors() const { return tensors_; }
  bool reads() const { return memory_ != nullptr; }
  QuantizedMemory& memory() { return *memory_; }
  HostMatrix& matrix() { return matrix_; }
  WeightGroups& groups() { return matrix_.groups; }
  const QuantizedPlace& place() const { return place_; }

  // The scheme of these numbers whose groups the scales have: [outputs][groups], or with
  // `transposed` [groups][outputs]. Sets the groups of the matrix.
  StatusOr<WeightScheme> FindScheme(const QuantizationConfig& quantization,
                                    DType numbers,
                                    int32_t bits,
                                    bool transposed) {
    const std::vector<int64_t>& shape = tensors_.scales->shape;
    std::vector<int64_t> wanted;
    for (const WeightScheme& scheme : quantization.schemes) {
      if (scheme.numbers != numbers || scheme.bits != bits) continue;
      const int64_t group_rows = scheme.group_rows == 0 ? rows() : scheme.group_rows;
      const int64_t group_cols = scheme.group_cols == 0 ? cols() : scheme.group_cols;
      wanted = {Ceil(rows(), group_rows), Ceil(cols(), group_cols)};
      if (transposed) std::swap(wanted[0], wanted[1]);
      const bool one = wanted == std::vector<int64_t>{1, 1} && (shape.empty() || shape == Ones());
      const bool vector = wanted[1] == 1 && shape == std::vector<int64_t>{wanted[0]};
      if (shape != wanted && !one && !vector) continue;
      matrix_.dtype = numbers;
      groups().rows = group_rows;
      groups().cols = group_cols;
      groups().in_row = transposed ? wanted[0] : wanted[1];
      return scheme;
    }
    if (wanted.empty()) {
      return InvalidArgument(
          "{} holds {} numbers of {} bits, but quantization_config describes none",
          NameForErrors(*tensors_.numbers),
          Name(numbers),
          bits);
    }
    return InvalidArgument("{} has shape {}; expected {}",
                           NameForErrors(*tensors_.scales),
                           ShapeText(shape),
                           ShapeText(wanted));
  }

  // Reads the scales, [outputs][groups], or with `transposed` [groups][outputs].
  Status ReadScales(bool transposed) {
    const FileTensor& tensor = *tensors_.scales;
    if (!IsFloatTensor(tensor)) {
      return InvalidArgument(
          "{} is of {}; expected f32, f16 or bf16", NameForErrors(tensor), TypeName(tensor));
    }
    groups().scale_type = ScaleTypeOf(tensor.dtype);
    if (!reads()) return OkStatus();
    std::vector<float> values(tensor.bytes.size() / ShapeOf(tensor.dtype).bytes);
    Dequantize(tensor.dtype, tensor.bytes, values);
    BATON_RETURN_IF_ERROR(CheckScales(tensor, values));
    SetScales(transposed ? Transposed(values) : std::move(values));
    return OkStatus();
  }

  void SetScales(std::vector<float> scales) {
    memory().scales = std::move(scales);
    groups().scales = memory().scales.data();
  }
  void SetZeros(std::vector<int8_t> zeros) {
    memory().zeros = std::move(zeros);
    groups().zeros = memory().zeros.data();
  }
  // Memory for the numbers, which become those of the matrix.
  std::span<std::byte> NewNumbers() {
    memory().numbers.resize(static_cast<size_t>(rows()) *
                            RowBytes(matrix_.dtype, static_cast<size_t>(cols())));
    matrix_.data = memory().numbers.data();
    return memory().numbers;
  }

 private:
  static std::vector<int64_t> Ones() { return {1}; }

  std::vector<float> Transposed(const std::vector<float>& values) const {
    std::vector<float> result(values.size());
    const auto outputs = static_cast<size_t>(rows());
    const size_t in_row = values.size() / outputs;
    for (size_t group = 0; group < in_row; ++group) {
      for (size_t row = 0; row < outputs; ++row) {
        result[row * in_row + group] = values[group * outputs + row];
      }
    }
    return result;
  }

  const QuantizedTensors& tensors_;
  const QuantizedPlace& place_;
  QuantizedMemory* const memory_;
  HostMatrix matrix_;
};

// Reads the group of each input. The groups must have equally many inputs, but for the last one.
Status ReadGroupIndices(Reading& reading) {
  const FileTensor* const tensor = reading.tensors().group_indices;
  if (tensor == nullptr) return OkStatus();
  BATON_RETURN_IF_ERROR(Expect(*tensor, "I32", {{reading.cols()}}));
  if (!reading.reads()) return OkStatus();
  WeightGroups& groups = reading.groups();
  std::vector<int32_t> indices(static_cast<size_t>(reading.cols()));
  std::memcpy(indices.data(), tensor->bytes.data(), tensor->bytes.size());
  std::vector<int64_t> inputs(static_cast<size_t>(groups.in_row));
  bool in_order = true;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= groups.in_row) {
      return InvalidArgument("{} has group {} for input {}; it must be in [0, {})",
                             NameForErrors(*tensor),
                             indices[i],
                             i,
                             groups.in_row);
    }
    ++inputs[static_cast<size_t>(indices[i])];
    in_order = in_order && indices[i] == static_cast<int64_t>(i) / groups.cols;
  }
  for (size_t group = 0; group < inputs.size(); ++group) {
    const auto first = static_cast<int64_t>(group) * groups.cols;
    const int64_t expected = std::min(groups.cols, reading.cols() - first);
    if (inputs[group] == expected) continue;
    return InvalidArgument("{} has {} inputs of group {}; expected {}",
                           NameForErrors(*tensor),
                           inputs[group],
                           group,
                           expected);
  }
  if (in_order) return OkStatus();
  reading.memory().group_indices = std::move(indices);
  groups.of_input = reading.memory().group_indices.data();
  return OkStatus();
}

// Zero points of `bits` bits, packed along the outputs: [groups][words]. `value` makes a zero point
// of the integer of an output.
template <class Value>
std::vector<int8_t> ReadPackedZeros(const Reading& reading,
                                    const FileTensor& tensor,
                                    const Value& value) {
  const auto in_row = static_cast<size_t>(tensor.shape[0]);
  const size_t row_bytes = tensor.bytes.size() / in_row;
  std::vector<int8_t> zeros(static_cast<size_t>(reading.rows()) * in_row);
  for (size_t group = 0; group < in_row; ++group) {
    const auto words = tensor.bytes.subspan(group * row_bytes, row_bytes);
    for (int64_t row = 0; row < reading.rows(); ++row) {
      zeros[static_cast<size_t>(row) * in_row + group] = static_cast<int8_t>(value(words, row));
    }
  }
  return zeros;
}

Status ReadGptq(Reading& reading, const QuantizationConfig& quantization) {
  const QuantizedTensors& tensors = reading.tensors();
  const std::vector<int64_t>& shape = tensors.numbers->shape;
  const int64_t words = shape.empty() ? 0 : shape[0];
  const auto bits = static_cast<int32_t>(std::clamp<int64_t>(words * 32 / reading.cols(), 1, 8));
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.numbers, "I32", {{Ceil(reading.cols() * bits, 32), reading.rows()}}));
  const DType numbers = bits == 8 ? DType::kI8 : DType::kU4;
  BATON_ASSIGN_OR_RETURN(const WeightScheme scheme,
                         reading.FindScheme(quantization, numbers, bits, /*transposed=*/true));
  BATON_RETURN_IF_ERROR(reading.ReadScales(/*transposed=*/true));
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.zeros, "I32", {{reading.groups().in_row, Ceil(reading.rows() * bits, 32)}}));
  BATON_RETURN_IF_ERROR(ReadGroupIndices(reading));
  // Symmetric weights have the middle as their zero, whatever the file says: tools wrote it in two
  // ways.
  const int32_t least = bits == 8 ? 128 : 0;
  const int32_t last = (1 << bits) - 1;
  reading.groups().zero = (1 << (bits - 1)) - least;
  if (!reading.reads()) return OkStatus();
  if (!scheme.symmetric) {
    const int32_t more = quantization.zeros_less_by_one ? 1 : 0;
    reading.SetZeros(ReadPackedZeros(
        reading, *tensors.zeros, [&](std::span<const std::byte> packed, int64_t row) {
          return ((PackedInteger(packed, row, bits) + more) & last) - least;
        }));
  }
  UnpackGptq(tensors.numbers->bytes, reading.rows(), reading.cols(), bits, reading.NewNumbers());
  return OkStatus();
}

Status ReadAwq(Reading& reading, const QuantizationConfig& quantization) {
  const QuantizedTensors& tensors = reading.tensors();
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.numbers, "I32", {{reading.cols(), Ceil(reading.rows(), 8)}}));
  BATON_RETURN_IF_ERROR(
      reading.FindScheme(quantization, DType::kU4, 4, /*transposed=*/true).status());
  BATON_RETURN_IF_ERROR(reading.ReadScales(/*transposed=*/true));
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.zeros, "I32", {{reading.groups().in_row, Ceil(reading.rows(), 8)}}));
  if (!reading.reads()) return OkStatus();
  reading.SetZeros(
      ReadPackedZeros(reading, *tensors.zeros, [](std::span<const std::byte> packed, int64_t row) {
        return PackedInteger(packed, PlaceOfAwq(row), 4);
      }));
  UnpackAwq(tensors.numbers->bytes, reading.rows(), reading.cols(), reading.NewNumbers());
  return OkStatus();
}

// Zero points of compressed-tensors, packed along the outputs: [words][groups].
std::vector<int8_t> ReadZerosByColumn(const Reading& reading,
                                      const FileTensor& tensor,
                                      int32_t bits,
                                      int32_t least) {
  const auto in_row = static_cast<size_t>(tensor.shape[1]);
  const int64_t in_word = 32 / bits;
  std::vector<int8_t> zeros(static_cast<size_t>(reading.rows()) * in_row);
  for (int64_t row = 0; row < reading.rows(); ++row) {
    for (size_t group = 0; group < in_row; ++group) {
      const size_t word = static_cast<size_t>(row / in_word) * in_row + group;
      const int32_t value =
          PackedInteger(tensor.bytes.subspan(word * 4, 4), row % in_word, bits) - least;
      zeros[static_cast<size_t>(row) * in_row + group] = static_cast<int8_t>(value);
    }
  }
  return zeros;
}

Status ReadPacked(Reading& reading, const QuantizationConfig& quantization) {
  const QuantizedTensors& tensors = reading.tensors();
  const std::vector<int64_t>& shape = tensors.numbers->shape;
  const int64_t words = shape.size() == 2 ? shape[1] : 0;
  const int32_t bits = words * 4 == reading.cols() ? 8 : 4;
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.numbers, "I32", {{reading.rows(), Ceil(reading.cols() * bits, 32)}}));
  const DType numbers = bits == 8 ? DType::kI8 : DType::kU4;
  BATON_ASSIGN_OR_RETURN(const WeightScheme scheme,
                         reading.FindScheme(quantization, numbers, bits, /*transposed=*/false));
  BATON_RETURN_IF_ERROR(reading.ReadScales(/*transposed=*/false));
  if (!scheme.symmetric && tensors.zeros == nullptr) {
    return MakeStatus(StatusCode::kNotFound,
                      "{}: tensor {}_zero_point is missing; quantization_config says that weights "
                      "are not symmetric",
                      tensors.numbers->file,
                      tensors.numbers->name.substr(0, tensors.numbers->name.rfind("_packed")));
  }
  if (tensors.zeros != nullptr) {
    BATON_RETURN_IF_ERROR(Expect(
        *tensors.zeros, "I32", {{Ceil(reading.rows() * bits, 32), reading.groups().in_row}}));
  }
  BATON_RETURN_IF_ERROR(ReadGroupIndices(reading));
  const int32_t least = bits == 8 ? 128 : 0;
  reading.groups().zero = (1 << (bits - 1)) - least;
  if (!reading.reads()) return OkStatus();
  if (tensors.zeros != nullptr) {
    reading.SetZeros(ReadZerosByColumn(reading, *tensors.zeros, bits, least));
  }
  if (bits == 4) return OkStatus();  // in place
  const std::span<std::byte> to = reading.NewNumbers();
  std::ranges::transform(tensors.numbers->bytes, to.begin(), [](std::byte number) {
    return number ^ std::byte{0x80};
  });
  return OkStatus();
}

Status ReadNumbers(Reading& reading, const QuantizationConfig& quantization) {
  const QuantizedTensors& tensors = reading.tensors();
  const DType numbers = tensors.numbers->dtype;
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.numbers, Name(numbers), {{reading.rows(), reading.cols()}}));
  BATON_RETURN_IF_ERROR(
      reading.FindScheme(quantization, numbers, 8, /*transposed=*/false).status());
  BATON_RETURN_IF_ERROR(reading.ReadScales(/*transposed=*/false));
  if (tensors.zeros == nullptr) return OkStatus();
  BATON_RETURN_IF_ERROR(Expect(*tensors.zeros, "i8", {tensors.scales->shape}));
  if (!reading.reads()) return OkStatus();
  const auto* const zeros = reinterpret_cast<const int8_t*>(tensors.zeros->bytes.data());
  reading.SetZeros({zeros, zeros + tensors.zeros->bytes.size()});
  return OkStatus();
}

Status ReadNvfp4(Reading& reading, const QuantizationConfig& quantization) {
  const QuantizedTensors& tensors = reading.tensors();
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.numbers, "U8", {{reading.rows(), Ceil(reading.cols(), 2)}}));
  BATON_RETURN_IF_ERROR(
      reading.FindScheme(quantization, DType::kFp4, 4, /*transposed=*/false).status());
  BATON_RETURN_IF_ERROR(reading.ReadScales(/*transposed=*/false));
  BATON_RETURN_IF_ERROR(Expect(*tensors.global_scale, "f32", {{1}, {}}));
  if (!reading.reads()) return OkStatus();
  float global = 0;
  std::memcpy(&global, tensors.global_scale->bytes.data(), sizeof(global));
  if (!std::isfinite(global) || global == 0) {
    return InvalidArgument(
        "{} is {}; it must be finite and not 0", NameForErrors(*tensors.global_scale), global);
  }
  for (float& scale : reading.memory().scales) scale /= global;
  reading.groups().divisor = global;
  return OkStatus();
}

// Numbers [slices][outputs][groups][16 bytes], and exponents [slices][outputs][groups] over 127.
Status ReadMxfp4(Reading& reading) {
  const QuantizedTensors& tensors = reading.tensors();
  const QuantizedPlace& place = reading.place();
  const int64_t in_row = reading.cols() / kMxGroup;
  BATON_RETURN_IF_ERROR(
      Expect(*tensors.numbers, "U8", {{place.slices, reading.rows(), in_row, kMxGroup / 2}}));
  BATON_RETURN_IF_ERROR(Expect(*tensors.scales, "U8", {{place.slices, reading.rows(), in_row}}));
  if (reading.cols() % kMxGroup != 0) {
    return InvalidArgument("{} is of {} inputs; MXFP4 needs a multiple of {}",
                           NameForErrors(*tensors.numbers),
                           reading.cols(),
                           kMxGroup);
  }
  reading.matrix().dtype = DType::kFp4;
  reading.groups().cols = kMxGroup;
  reading.groups().in_row = in_row;
  reading.groups().scale_type = ScaleType::kE8m0;
  if (!reading.reads()) return OkStatus();
  const auto count = static_cast<size_t>(reading.rows() * in_row);
  const auto exponents =
      tensors.scales->bytes.subspan(static_cast<size_t>(place.slice) * count, count);
  std::vector<float> scales;
  for (const std::byte exponent : exponents) {
    const auto bits = std::to_integer<int>(exponent);
    if (bits == 255) {
      return InvalidArgument("{} has the exponent 255, which is NaN",
                             NameForErrors(*tensors.scales));
    }
    scales.push_back(std::ldexp(1.0f, bits - 127));
  }
  reading.SetScales(std::move(scales));
  reading.matrix().data += static_cast<size_t>(place.slice) * count * (kMxGroup / 2);
  return OkStatus();
}

}  // namespace

StatusOr<HostMatrix> ReadQuantized(const QuantizedTensors& tensors,
                                   const QuantizationConfig& quantization,
                                   const QuantizedPlace& place,
                                   QuantizedMemory* memory) {
  Reading reading(tensors, place, memory);
  BATON_RETURN_IF_ERROR(CheckWords(tensors, place));
  const auto read = [&]() -> Status {
    switch (tensors.layout) {
      case Layout::kGptq:
        return ReadGptq(reading, quantization);
      case Layout::kAwq:
        return ReadAwq(reading, quantization);
      case Layout::kPacked:
        return ReadPacked(reading, quantization);
      case Layout::kNumbers:
        return ReadNumbers(reading, quantization);
      case Layout::kNvfp4:
        return ReadNvfp4(reading, quantization);
      case Layout::kMxfp4:
        return ReadMxfp4(reading);
    }
    return OkStatus();
  };
  BATON_RETURN_IF_ERROR(read());
  if (memory == nullptr) reading.matrix().data = nullptr;
  return reading.matrix();
}

HostMatrix TakeQuantizedRows(const HostMatrix& matrix,
                             const std::vector<int64_t>& rows,
                             QuantizedMemory& memory) {
  const WeightGroups& groups = matrix.groups;
  const size_t row_bytes = RowBytes(matrix.dtype, static_cast<size_t>(matrix.cols));
  const auto in_row = static_cast<size_t>(groups.in_row);
  for (const int64_t row : rows) {
    const std::byte* const numbers = matrix.Row(row);
    memory.numbers.insert(memory.numbers.end(), numbers, numbers + row_bytes);
    const size_t first = static_cast<size_t>((groups.first_row + row) / groups.rows) * in_row;
    memory.scales.insert(
        memory.scales.end(), groups.scales + first, groups.scales + first + in_row);
    if (groups.zeros == nullptr) continue;
    memory.zeros.insert(memory.zeros.end(), groups.zeros + first, groups.zeros + first + in_row);
  }
  HostMatrix taken = matrix;
  taken.rows = static_cast<int64_t>(rows.size());
  taken.data = memory.numbers.data();
  taken.groups.rows = 1;
  taken.groups.first_row = 0;
  taken.groups.scales = memory.scales.data();
  if (groups.zeros != nullptr) taken.groups.zeros = memory.zeros.data();
  if (groups.of_input != nullptr) {
    memory.group_indices.assign(groups.of_input, groups.of_input + groups.first_col + matrix.cols);
    taken.groups.of_input = memory.group_indices.data();
  }
  return taken;
}

}  // namespace baton
