#include "common/model/file_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/model/copy_columns.h"
#include "common/model/ggml_types.h"
#include "common/model/transposed_matrix.h"
#include "common/model/weights_hash.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

constexpr size_t kSampleBytes = 4096;
constexpr size_t kComparedAtOnce = size_t{16} << 20;

// Hashes the begin, the middle and the end: enough to distinguish two models, and fast for any
// size.
Hash128 SampleHash(std::span<const std::byte> bytes) {
  const size_t length = std::min(bytes.size(), kSampleBytes);
  Hash128 hash = Xxh3Wide(bytes.first(length));
  hash = Xxh3Wide(bytes.subspan((bytes.size() - length) / 2, length), hash.low);
  return Xxh3Wide(bytes.last(length), hash.low);
}

// Of a tensor that has the weight of every expert.
size_t DimensionsOfStack(WeightKind kind) {
  return kind >= WeightKind::kExpertGateBias ? 2 : 3;
}

// For messages: the end of the shape that is expected of a tensor.
std::string OfExperts(bool stacked, int32_t experts) {
  return stacked ? fmt::format(" for each of {} experts", experts) : "";
}

// Whether a vector of a recurrent layer may have this shape. The factors of a convolution of
// channels by themselves are [channels][1][kernel], in GGUF files [channels][kernel], and in those
// of Kimi Linear [1][channels][1][kernel]. Decays are those of heads, [1][1][heads][1], or
// [channels][numbers]. GGUF files of Mamba 2 have [heads][1], and norms as [groups][numbers].
bool IsShapeOfRecurrent(WeightKind kind, const std::vector<int64_t>& shape, int64_t size) {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  if (product != size) return false;
  switch (kind) {
    case WeightKind::kRecurrentConvolution:
    case WeightKind::kRecurrentKeyConvolution:
    case WeightKind::kRecurrentValueConvolution:
      return shape.size() == 2 || (shape.size() == 3 && shape[1] == 1) ||
             (shape.size() == 4 && shape[0] == 1 && shape[2] == 1);
    case WeightKind::kRecurrentDecay:
      return shape.size() == 2 || shape.size() == 4;
    case WeightKind::kRecurrentSkip:
    case WeightKind::kRecurrentNorm:
      return shape.size() == 2;
    default:
      return false;
  }
}

// GGUF files have −exp(A) for the A of a recurrent layer.
Status TakeLogarithms(const FileTensor& tensor, std::span<float> values) {
  for (float& value : values) {
    // The negation also catches NaN.
    if (!(value < 0)) {
      return InvalidArgument(
          "{}: tensor {} has {}; it must be less than 0", tensor.file, tensor.name, value);
    }
    value = std::log(-value);
  }
  return OkStatus();
}

}  // namespace

FileWeights::FileWeights(std::unique_ptr<GgufFile> gguf, const Naming& naming)
    : naming_(naming), where_(gguf->path()), gguf_(std::move(gguf)) {
  for (const FileTensor& tensor : gguf_->tensors()) Add(tensor);
}

FileWeights::FileWeights(std::string directory,
                         SafetensorsDirectory opened,
                         const Naming& naming,
                         QuantizationConfig quantization)
    : naming_(naming),
      quantization_(std::move(quantization)),
      where_(std::move(directory)),
      safetensors_(std::move(opened.files)) {
  for (const FileTensor* tensor : opened.tensors) Add(*tensor);
}

void FileWeights::Add(const FileTensor& tensor) {
  tensors_.push_back(&tensor);
  const bool added = by_name_.emplace(tensor.name, &tensor).second;
  BATON_CHECK(added, "{}: two tensors {}", where_, tensor.name);
}

const FileTensor* FileWeights::TensorOf(const std::string& name) const {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) found = by_name_.find(NameBesideImages(name, naming_.scheme));
  // A checkpoint of the layers without a head, as sentence-transformers writes it.
  constexpr std::string_view kModel = "model.";
  if (found == by_name_.end() && name.starts_with(kModel)) {
    found = by_name_.find(name.substr(kModel.size()));
  }
  return found == by_name_.end() ? nullptr : found->second;
}

StatusOr<FileWeights::Found> FileWeights::LookupName(const std::string& name) const {
  Found found{.tensor = TensorOf(name)};
  if (IsGguf(naming_.scheme) || (found.tensor != nullptr && !IsNumberOfByte(*found.tensor))) {
    return found;
  }
  const auto lookup = [this](const std::string& one) { return TensorOf(one); };
  auto quantized = FindQuantized(name, quantization_, lookup);
  if (!quantized.ok()) {
    return Annotate(quantized.status(), where_);
  }
  if (!quantized->has_value()) return found;
  found.tensor = (*quantized)->numbers;
  found.quantized = *std::move(quantized);
  return found;
}

StatusOr<FileWeights::Found> FileWeights::Lookup(const WeightId& id) const {
  const TensorName name = NameOf(id, naming_);
  BATON_ASSIGN_OR_RETURN(Found found, LookupName(name.tensor));
  if (found.tensor == nullptr) return name.stacked ? LookupName(name.slice) : found;
  found.stacked = name.stacked;
  const size_t dimensions = found.tensor->shape.size();
  const bool is_stack =
      name.stacked && (found.quantized || dimensions == DimensionsOfStack(id.kind));
  if (is_stack) {
    found.slice = id.expert;
    found.slices = found.tensor->shape.front();
  }
  found.part = name.part;
  found.size = name.size;
  found.parts = name.parts;
  found.order = name.order;
  return found;
}

std::string FileWeights::MissingName(const WeightId& id) const {
  const TensorName name = NameOf(id, naming_);
  for (const int32_t expert : {0, 1}) {
    const TensorName other = NameOf({id.kind, id.layer, expert}, naming_);
    if (name.stacked && TensorOf(other.slice) != nullptr) return name.slice;
  }
  return name.tensor;
}

StatusOr<FileWeights::Found> FileWeights::Find(const WeightId& id) const {
  BATON_ASSIGN_OR_RETURN(const Found found, Lookup(id));
  if (found.tensor == nullptr) {
    return MakeStatus(StatusCode::kNotFound,
                      "{}: tensor {} is missing{}",
                      where_,
                      MissingName(id),
                      id.kind == WeightKind::kHead
                          ? "; if the embedding is also the output head, config.json needs "
                            "tie_word_embeddings: true"
                          : "");
  }
  const FileTensor& tensor = *found.tensor;
  if (found.quantized) {
    for (const FileTensor* const one : found.quantized->All()) read_.insert(one);
    return found;
  }
  if (!tensor.other_type.empty()) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: tensor {} is of {}, which is not supported; supported are {}",
                      tensor.file,
                      tensor.name,
                      tensor.other_type,
                      IsGguf(naming_.scheme) ? ReadableGgmlTypes() : "F32 F16 BF16");
  }
  read_.insert(&tensor);
  return found;
}

StatusOr<HostMatrix> FileWeights::GetMatrix(const WeightId& id,
                                            int64_t rows,
                                            int64_t cols,
                                            const MatrixSlice& slice) const {
  return FindMatrix(id, rows, cols, slice, /*reads_content=*/true);
}

Status FileWeights::CheckMatrix(const WeightId& id,
                                int64_t rows,
                                int64_t cols,
                                const MatrixSlice& slice) const {
  return FindMatrix(id, rows, cols, slice, /*reads_content=*/false).status();
}

StatusOr<HostMatrix> FileWeights::FindMatrix(const WeightId& id,
                                             int64_t rows,
                                             int64_t cols,
                                             const MatrixSlice& slice,
                                             bool reads_content) const {
  BATON_ASSIGN_OR_RETURN(const Found found, Find(id));
  const FileTensor& tensor = *found.tensor;
  if (found.quantized) {
    BATON_ASSIGN_OR_RETURN(const HostMatrix quantized,
                           ReadQuantizedMatrix(id, found, rows, cols, reads_content));
    return SliceOf(quantized, slice, NameForErrors(tensor));
  }
  const int64_t slice_rows = rows / found.size * found.parts;
  // llama.cpp drops the dimension of a single row.
  const bool one_row = IsGguf(naming_.scheme) && rows == 1 && found.parts == 1 &&
                       tensor.shape == std::vector<int64_t>{cols};
  // [heads][rows of a head][columns]
  const bool of_heads = id.kind == WeightKind::kLatentKeys || id.kind == WeightKind::kLatentValues;
  const bool columns = found.order == RowOrder::kColumns || found.order == RowOrder::kColumnParts;
  const std::vector<int64_t> of_slice =
      columns ? std::vector<int64_t>{cols, slice_rows} : std::vector<int64_t>{slice_rows, cols};
  std::vector<int64_t> wanted = of_slice;
  if (found.stacked && tensor.shape.size() == 3) wanted.insert(wanted.begin(), found.slices);
  if (of_heads) wanted = {naming_.heads, rows / naming_.heads, cols};
  const bool fits = (tensor.shape == wanted || one_row) && HasAllExperts(found) &&
                    (!found.stacked || wanted.size() == 3) && rows % found.size == 0;
  if (!fits) {
    return InvalidArgument("{}: tensor {} has shape {}; expected {}{}",
                           tensor.file,
                           tensor.name,
                           ShapeText(tensor.shape),
                           ShapeText(of_heads ? wanted : of_slice),
                           OfExperts(found.stacked, naming_.experts));
  }
  HostMatrix matrix{tensor.dtype, rows, cols, tensor.bytes.data()};
  const bool copied = found.order != RowOrder::kPartByPart;
  if (copied && !reads_content) {
    matrix.data = nullptr;
    return SliceOf(matrix, slice, NameForErrors(tensor));
  }
  if (copied) {
    copies_.push_back({id, OrderedRows(found, cols)});
    matrix.data = copies_.back().bytes.data();
    return SliceOf(matrix, slice, NameForErrors(tensor));
  }
  const int64_t first_row = found.slice * slice_rows + found.part * (rows / found.size);
  matrix.data += first_row * RowBytes(tensor.dtype, cols);
  return SliceOf(matrix, slice, NameForErrors(tensor));
}

StatusOr<HostMatrix> FileWeights::ReadQuantizedMatrix(
    const WeightId& id, const Found& found, int64_t rows, int64_t cols, bool reads_content) const {
  if (rows % found.size != 0 || (found.stacked && found.slices != naming_.experts)) {
    return InvalidArgument("{} has shape {}; expected {} rows of {}{}",
                           NameForErrors(*found.tensor),
                           ShapeText(found.tensor->shape),
                           rows / found.size * found.parts,
                           cols,
                           OfExperts(found.stacked, naming_.experts));
  }
  const int64_t part_rows = rows / found.size;
  const QuantizedPlace place{
      .rows = part_rows * found.parts, .cols = cols, .slice = found.slice, .slices = found.slices};
  const auto new_memory = [&]() { return &copies_.emplace_back(Copy{.id = id}).quantized; };
  QuantizedMemory* const memory = reads_content ? new_memory() : nullptr;
  BATON_ASSIGN_OR_RETURN(const HostMatrix whole,
                         ReadQuantized(*found.quantized, quantization_, place, memory));
  // Columns of the tensor as it is are rows of the quantised one.
  const bool in_turn = found.order == RowOrder::kColumns || found.order == RowOrder::kHeadByHead;
  if (!in_turn || found.parts == 1 || !reads_content) {
    return RowsOf(whole, found.part * part_rows, rows);
  }
  const int64_t together =
      found.order == RowOrder::kColumns ? 1 : part_rows / std::max(naming_.heads, 1);
  std::vector<int64_t> taken;
  for (int64_t row = 0; row < rows; ++row) {
    taken.push_back((row / together * found.parts + found.part) * together + row % together);
  }
  return TakeQuantizedRows(whole, taken, *new_memory());
}

std::span<const std::byte> FileWeights::SliceBytes(const Found& found) {
  const std::span<const std::byte> bytes = found.tensor->bytes;
  const size_t length = bytes.size() / static_cast<size_t>(found.slices);
  return bytes.subspan(length * static_cast<size_t>(found.slice), length);
}

std::vector<std::byte> FileWeights::OrderedRows(const Found& found, int64_t cols) const {
  const DType dtype = found.tensor->dtype;
  if (found.order == RowOrder::kHeadByHead) return RowsOfHeads(found, RowBytes(dtype, cols));
  const std::span<const std::byte> from = SliceBytes(found);
  const auto parts = static_cast<size_t>(found.parts);
  const auto part = static_cast<size_t>(found.part);
  const size_t columns = from.size() / RowBytes(dtype, cols);
  std::vector<std::byte> rows(from.size() / parts);
  const size_t count = columns / parts;
  const ColumnRange range = found.order == RowOrder::kColumns
                                ? ColumnRange{.first = part, .step = parts, .count = count}
                                : ColumnRange{.first = part * count, .count = count};
  const auto copy = RowBytes(dtype, 1) == 2 ? CopyColumns<uint16_t> : CopyColumns<uint32_t>;
  copy(from, columns, range, rows.data());
  return rows;
}

std::vector<std::byte> FileWeights::RowsOfHeads(const Found& found, size_t row_bytes) const {
  const std::span<const std::byte> from = found.tensor->bytes;
  const auto parts = static_cast<size_t>(found.parts);
  const auto heads = static_cast<size_t>(naming_.heads);
  const size_t head_bytes = from.size() / (parts * heads) / row_bytes * row_bytes;
  std::vector<std::byte> rows;
  rows.reserve(head_bytes * heads);
  for (size_t head = 0; head < heads; ++head) {
    const size_t first = (head * parts + static_cast<size_t>(found.part)) * head_bytes;
    const auto of_head = from.subspan(first, head_bytes);
    rows.insert(rows.end(), of_head.begin(), of_head.end());
  }
  return rows;
}

StatusOr<FileWeights::Found> FileWeights::FindVector(const WeightId& id, int64_t size) const {
  BATON_ASSIGN_OR_RETURN(const Found found, Find(id));
  const FileTensor& tensor = *found.tensor;
  if (found.quantized) {
    return InvalidArgument("{} is quantised; only matrices may be", NameForErrors(tensor));
  }
  const int64_t tensor_size = size / found.size * found.parts;
  std::vector<int64_t> wanted = {tensor_size};
  if (found.stacked) wanted.insert(wanted.begin(), found.slices);
  if (tensor.shape == wanted && HasAllExperts(found)) return found;
  // ERNIE has one group of selection biases: [1][experts].
  const std::vector<int64_t> one_group = {1, tensor_size};
  if (id.kind == WeightKind::kSelectionBias && tensor.shape == one_group) return found;
  // Norms of heads with weights of their own are [heads][head_dim].
  const bool of_heads = id.kind == WeightKind::kQueryNorm || id.kind == WeightKind::kKeyNorm;
  if (of_heads && tensor.shape.size() == 2 && tensor.shape[1] > 0 &&
      tensor.shape[0] == size / tensor.shape[1] && size % tensor.shape[1] == 0) {
    return found;
  }
  if (IsShapeOfRecurrent(id.kind, tensor.shape, size)) return found;
  return InvalidArgument("{}: tensor {} has shape {}; expected [{}]{}",
                         tensor.file,
                         tensor.name,
                         ShapeText(tensor.shape),
                         tensor_size,
                         OfExperts(found.stacked, naming_.experts));
}

Status FileWeights::CheckVector(const WeightId& id, int64_t size) const {
  return FindVector(id, size).status();
}

StatusOr<std::vector<float>> FileWeights::GetVector(const WeightId& id,
                                                    int64_t size,
                                                    const std::optional<IndexRange>& range) const {
  BATON_ASSIGN_OR_RETURN(const Found found, FindVector(id, size));
  const FileTensor& tensor = *found.tensor;
  BATON_ASSIGN_OR_RETURN(const IndexRange wanted,
                         ResolveRange(range, size, NameForErrors(tensor), "elements"));
  std::vector<float> values(static_cast<size_t>(size));
  if (found.order != RowOrder::kPartByPart) {
    Dequantize(tensor.dtype, OrderedRows(found, 1), values);
  } else {
    const std::span<const std::byte> slice = SliceBytes(found);
    const size_t of_part = slice.size() / static_cast<size_t>(found.parts);
    Dequantize(tensor.dtype,
               slice.subspan(of_part * static_cast<size_t>(found.part),
                             of_part * static_cast<size_t>(found.size)),
               values);
  }
  if (IsLessByOne(id.kind, naming_.scheme)) {
    for (float& value : values) value += 1;
  }
  if (id.kind == WeightKind::kRecurrentDecay && IsGguf(naming_.scheme)) {
    BATON_RETURN_IF_ERROR(TakeLogarithms(tensor, values));
  }
  return std::vector<float>(values.begin() + wanted.begin, values.begin() + wanted.end);
}

void FileWeights::Release(const WeightId& id) const {
  std::erase_if(copies_, [&id](const Copy& copy) { return copy.id == id; });
  const StatusOr<Found> found = Find(id);
  if (!found.ok()) return;
  if (found->quantized) {
    for (const FileTensor* const tensor : found->quantized->All()) Drop(tensor->bytes);
    return;
  }
  // Drops the pages of the whole tensor even when only one expert was used: dropped pages are read
  // from the file again when needed.
  Drop(found->tensor->bytes);
}

bool FileWeights::HasDifferent(const WeightId& a, const WeightId& b) const {
  const FileTensor* const first = TensorOf(NameOf(a, naming_).tensor);
  const FileTensor* const second = TensorOf(NameOf(b, naming_).tensor);
  if (first == nullptr || second == nullptr) return false;
  const FileTensor& x = *first;
  const FileTensor& y = *second;
  if (TypeName(x) != TypeName(y) || x.shape != y.shape) return true;
  bool equal = x.bytes.size() == y.bytes.size();
  for (size_t at = 0; equal && at < x.bytes.size(); at += kComparedAtOnce) {
    const size_t length = std::min(kComparedAtOnce, x.bytes.size() - at);
    const auto part = x.bytes.subspan(at, length);
    const auto other = y.bytes.subspan(at, length);
    equal = std::memcmp(part.data(), other.data(), length) == 0;
    Drop(part);
    Drop(other);
  }
  return !equal;
}

void FileWeights::Drop(std::span<const std::byte> bytes) const {
  if (gguf_ != nullptr) gguf_->DropPages(bytes);
  for (const auto& file : safetensors_) file->DropPages(bytes);
}

Hash128 FileWeights::HashPieces(const WeightId& id, const PieceShare& share) const {
  const StatusOr<Found> looked_up = Lookup(id);
  if (!looked_up.ok() || looked_up->tensor == nullptr) return {};
  const Found& found = *looked_up;
  if (found.quantized) return HashQuantized(found, share);
  std::string name = found.tensor->name;
  std::span<const std::byte> bytes = found.tensor->bytes;
  // Parts that are not one behind the other are hashed together, as the first of their weights.
  const bool divided = found.order == RowOrder::kPartByPart;
  if (!divided && found.part > 0) return {};
  if (found.stacked || (divided && found.parts > 1)) {
    if (found.slice >= found.slices) return {};
    const int64_t parts_of_slice = divided ? found.parts : 1;
    const auto parts = static_cast<size_t>(found.slices * parts_of_slice);
    const auto first = static_cast<size_t>(found.slice * parts_of_slice + found.part);
    const size_t length = bytes.size() / parts;
    bytes = bytes.subspan(length * first, length * static_cast<size_t>(found.size));
    name += fmt::format("[{}]", first);
  }
  return HashOfPieces(name, bytes, share);
}

Hash128 FileWeights::HashQuantized(const Found& found, const PieceShare& share) const {
  // The parts of a matrix are hashed together, as the first one of them.
  if (found.part > 0) return {};
  if (found.slice >= found.slices) return {};
  const auto slices = static_cast<size_t>(found.slices);
  Hash128 sum;
  for (const FileTensor* const tensor : found.quantized->All()) {
    const size_t length = tensor->bytes.size() / slices;
    const auto bytes = tensor->bytes.subspan(length * static_cast<size_t>(found.slice), length);
    const std::string name =
        found.stacked ? fmt::format("{}[{}]", tensor->name, found.slice) : tensor->name;
    sum = SumOf(sum, HashOfPieces(name, bytes, share));
  }
  return sum;
}

Hash128 FileWeights::Identity() const {
  std::vector<const FileTensor*> sorted = tensors_;
  std::sort(sorted.begin(), sorted.end(), [](const FileTensor* a, const FileTensor* b) {
    return a->name < b->name;
  });
  std::string text;
  for (const FileTensor* tensor : sorted) {
    text += fmt::format("{} {} {} {}\n",
                        tensor->name,
                        TypeName(*tensor),
                        ShapeText(tensor->shape),
                        SampleHash(tensor->bytes));
    // A rank may hold no part of the tensor, and then never releases it.
    Drop(tensor->bytes);
  }
  return Xxh3Wide(std::as_bytes(std::span(text)));
}

std::vector<TensorInfo> FileWeights::Tensors() const {
  std::vector<TensorInfo> infos;
  for (const FileTensor* tensor : tensors_) {
    infos.push_back(
        {tensor->name, TypeName(*tensor), tensor->shape, tensor->bytes.size(), tensor->file});
  }
  return infos;
}

std::vector<std::string> FileWeights::Unread() const {
  std::vector<std::string> names;
  for (const FileTensor* tensor : tensors_) {
    if (!read_.contains(tensor)) names.push_back(tensor->name);
  }
  return names;
}

}  // namespace baton
