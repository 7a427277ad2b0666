#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/model/open_model.h"
#include "tests/support/temporary_folder.h"

namespace baton {

// The GGUF file of a tiny model (tiny_gguf.h), whose bytes a test changes. Stops the process when
// the file does not have what is to be changed.
class ChangedGguf final {
 public:
  explicit ChangedGguf(const std::string& name);

  // Gives the key a number of 32 bits, which stands behind the type of the value.
  void Set(std::string_view key, uint32_t value);
  void SetFloat(std::string_view key, float value);
  // Gives an entry of a list of numbers of 32 bits another value. The entries stand behind the type
  // of the list, that of its entries and their number.
  void SetEntry(std::string_view key, size_t index, uint32_t value);
  // Adds a key with a number of 32 bits in front of the others.
  void Add(std::string_view key, uint32_t value);
  // Gives the file another architecture.
  void SetArchitecture(std::string_view old, std::string_view other);
  // Gives a tensor of three dimensions another type, which stands behind their number and sizes.
  void SetType(std::string_view tensor, uint32_t type);
  // Gives the key or the tensor another name of the same length.
  void Rename(std::string_view name, std::string_view other);
  // Changes the signs of a tensor of float32.
  void Negate(const std::string& tensor);

  StatusOr<OpenedModel> Open() const;
  // The error of reading the configuration, or of loading the weights.
  std::string Error() const;

 private:
  void Write(std::string_view name, size_t distance, uint32_t value);
  // Inserts a key in front of the others, and one with as many bytes as keep the tensors at
  // multiples of the alignment.
  void Insert(std::string added);
  size_t PlaceOf(std::string_view name) const;

  std::string bytes_;
  const size_t size_ = bytes_.size();
  const TemporaryFolder folder_;
};

// The spec of a file whose key `key` has another name.
ModelSpec SpecWithout(const std::string& file, const std::string& key);

}  // namespace baton
