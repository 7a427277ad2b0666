#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "common/model/file_tensor.h"
#include "common/model/gguf_file.h"
#include "common/model/quantized_tensors.h"
#include "common/model/read_quantized.h"
#include "common/model/safetensors_directory.h"
#include "common/model/weight_names.h"
#include "common/model/weight_source.h"

namespace baton {

// The weights of a GGUF file or of a directory's safetensors files, read in place. Owns the mapped
// files.
class FileWeights final : public WeightSource {
 public:
  // `naming` is that of the model.
  FileWeights(std::unique_ptr<GgufFile> gguf, const Naming& naming);
  // `directory` is named in errors about a tensor that is in none of the files.
  FileWeights(std::string directory,
              SafetensorsDirectory opened,
              const Naming& naming,
              QuantizationConfig quantization = {});

  StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                 int64_t rows,
                                 int64_t cols,
                                 const MatrixSlice& slice) const override;
  Status CheckMatrix(const WeightId& id,
                     int64_t rows,
                     int64_t cols,
                     const MatrixSlice& slice) const override;
  StatusOr<std::vector<float>> GetVector(const WeightId& id,
                                         int64_t size,
                                         const std::optional<IndexRange>& range) const override;
  Status CheckVector(const WeightId& id, int64_t size) const override;
  void Release(const WeightId& id) const override;
  bool HasDifferent(const WeightId& a, const WeightId& b) const override;
  Hash128 HashPieces(const WeightId& id, const PieceShare& share) const override;
  Hash128 Identity() const override;
  std::vector<TensorInfo> Tensors() const override;
  std::vector<std::string> Unread() const override;

 private:
  // A tensor that has a DType, so that it can be loaded.
  struct Found {
    const FileTensor* tensor = nullptr;
    bool stacked = false;  // TensorName::stacked, and not the name of a slice
    // The weight is in slice `slice` of `slices` equal slices of the tensor's bytes, and is parts
    // part … part + size − 1 of `parts` equal parts of the slice, whose rows are in this order.
    int64_t slice = 0;
    int64_t slices = 1;
    int64_t part = 0;
    int64_t size = 1;
    int64_t parts = 1;
    RowOrder order = RowOrder::kPartByPart;
    // Of a quantised matrix; `tensor` then has its numbers.
    std::optional<QuantizedTensors> quantized = {};
  };
  // The tensor of this name, or of that in files of a model with images; or null.
  const FileTensor* TensorOf(const std::string& name) const;
  // As Find, but the tensor may be of any type, and does not count as read. Null: missing.
  // NotFound when only a part of the tensors of a quantised matrix is there.
  StatusOr<Found> Lookup(const WeightId& id) const;
  // The tensors of this name, of one matrix or of all experts, as they are or quantised.
  StatusOr<Found> LookupName(const std::string& name) const;
  // The name of a missing tensor: of one expert, where the file has other ones one by one.
  std::string MissingName(const WeightId& id) const;
  StatusOr<Found> Find(const WeightId& id) const;
  // The rows of a matrix of this shape that are in the slice. Without `reads_content`, a matrix
  // whose rows would have to be copied has no data.
  StatusOr<HostMatrix> FindMatrix(const WeightId& id,
                                  int64_t rows,
                                  int64_t cols,
                                  const MatrixSlice& slice,
                                  bool reads_content) const;
  StatusOr<HostMatrix> ReadQuantizedMatrix(
      const WeightId& id, const Found& found, int64_t rows, int64_t cols, bool reads_content) const;
  Hash128 HashQuantized(const Found& found, const PieceShare& share) const;
  StatusOr<Found> FindVector(const WeightId& id, int64_t size) const;
  // The rows, of `cols` numbers each, of a weight that has them in another order than its tensor.
  std::vector<std::byte> OrderedRows(const Found& found, int64_t cols) const;
  std::vector<std::byte> RowsOfHeads(const Found& found, size_t row_bytes) const;
  // Whether a tensor of all experts has as many as the model.
  bool HasAllExperts(const Found& found) const {
    return found.slices == (found.stacked ? naming_.experts : 1);
  }
  // The bytes of the slice that the weight is in.
  static std::span<const std::byte> SliceBytes(const Found& found);
  void Add(const FileTensor& tensor);
  // Gives the pages of `bytes`, a tensor's, back to the system.
  void Drop(std::span<const std::byte> bytes) const;

  const Naming naming_;
  const QuantizationConfig quantization_;
  std::string where_;
  std::unique_ptr<GgufFile> gguf_;
  std::vector<std::unique_ptr<SafetensorsFile>> safetensors_;
  std::vector<const FileTensor*> tensors_;  // in file order
  absl::flat_hash_map<std::string, const FileTensor*> by_name_;
  mutable absl::flat_hash_set<const FileTensor*> read_;
  // Copies of matrices whose rows are not one behind the other in the file, until Release.
  struct Copy {
    WeightId id;
    std::vector<std::byte> bytes = {};
    QuantizedMemory quantized = {};
  };
  mutable std::vector<Copy> copies_;
};

}  // namespace baton
