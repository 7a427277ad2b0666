#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/model/gguf_file.h"

namespace baton {

// Reads typed and bounded values from a model's configuration, independent of the file format.
// status() keeps the first error, which names file, key, the value found and the valid values. A
// read that fails returns the lowest allowed value or the fallback. One thread at a time.
class ConfigFields {
 public:
  virtual ~ConfigFields() = default;

  // Whether the key is present and not null.
  virtual bool Has(std::string_view key) const = 0;

  int32_t Int(std::string_view key, int32_t low, int32_t high);
  int32_t IntOr(std::string_view key, int32_t fallback, int32_t low, int32_t high);
  double Number(std::string_view key, double low, double high);
  double NumberOr(std::string_view key, double fallback, double low, double high);
  bool BoolOr(std::string_view key, bool fallback);
  std::string TextOr(std::string_view key, std::string_view fallback);
  // One number, or a list of at most 1024 numbers. Empty when the key is absent.
  std::vector<int32_t> IntsOr(std::string_view key, int32_t low, int32_t high);

  void Fail(Status status);
  const Status& status() const { return status_; }
  // The path of the file, with which errors begin.
  const std::string& file() const { return file_; }

 protected:
  explicit ConfigFields(std::string file) : file_(std::move(file)) {}

  // Errors: NotFound or InvalidArgument naming file and key.
  virtual StatusOr<int64_t> ReadInt(std::string_view key) const = 0;
  virtual StatusOr<double> ReadNumber(std::string_view key) const = 0;
  virtual StatusOr<bool> ReadBool(std::string_view key) const = 0;
  virtual StatusOr<std::string> ReadText(std::string_view key) const = 0;
  virtual StatusOr<std::vector<int64_t>> ReadInts(std::string_view key) const = 0;

 private:
  std::string file_;
  Status status_;
};

// The members of a JSON object.
class JsonFields final : public ConfigFields {
 public:
  // Errors: InvalidArgument naming `file` when `text` is not a JSON object.
  static StatusOr<std::unique_ptr<JsonFields>> Parse(std::string file, std::string_view text);
  ~JsonFields() override;

  bool Has(std::string_view key) const override;
  // The keys of the object, sorted.
  std::vector<std::string> Keys() const;
  // Whether the key is present and null.
  bool IsNull(std::string_view key) const;
  // Whether the key is present and a number.
  bool IsNumber(std::string_view key) const;
  // Whether the value is this string. Values of other types are no error.
  bool IsText(std::string_view key, std::string_view text) const;
  // The object under `key`. NotFound when the key is absent; InvalidArgument for another type.
  StatusOr<std::unique_ptr<JsonFields>> Object(std::string_view key) const;
  // The list of numbers under `key`, all within the bounds. {"__float__": "Infinity"} is an
  // infinite number, as transformers 5 writes it. Errors as Object, and InvalidArgument naming a
  // number that is out of bounds.
  StatusOr<std::vector<double>> Numbers(std::string_view key, double low, double high) const;
  // The list of strings under `key`. Errors as Object.
  StatusOr<std::vector<std::string>> Texts(std::string_view key) const;
  // The list under `key` of the kinds of `layers` layers: whether each is `kind`; the others are
  // `other`. Errors as Object, InvalidArgument for another number of entries, and Unimplemented
  // naming a kind that is neither.
  StatusOr<std::vector<bool>> LayersOfKind(std::string_view key,
                                           size_t layers,
                                           std::string_view kind,
                                           std::string_view other) const;

 protected:
  StatusOr<int64_t> ReadInt(std::string_view key) const override;
  StatusOr<double> ReadNumber(std::string_view key) const override;
  StatusOr<bool> ReadBool(std::string_view key) const override;
  StatusOr<std::string> ReadText(std::string_view key) const override;
  StatusOr<std::vector<int64_t>> ReadInts(std::string_view key) const override;

 private:
  JsonFields(std::string file, nlohmann::json object);
  StatusOr<const nlohmann::json*> Find(std::string_view key) const;

  std::unique_ptr<const nlohmann::json> object_;
};

// The metadata keys of a GGUF file that begin with a prefix such as "llama.". A list with one
// number per layer can be read as one number when all numbers are equal. The file must outlive this
// object.
class GgufFields final : public ConfigFields {
 public:
  GgufFields(const GgufFile& gguf, std::string prefix);

  bool Has(std::string_view key) const override;
  // The booleans of the first `layers` layers in the list under `key`, which has one for each layer
  // of the file. Errors: NotFound and InvalidArgument naming file and key.
  StatusOr<std::vector<bool>> Flags(std::string_view key, size_t layers) const;
  // The numbers of the first `layers` layers, all within the bounds: those of such a list, or one
  // number, which all layers have. Errors as Flags, and InvalidArgument naming a number that is out
  // of bounds.
  StatusOr<std::vector<int32_t>> OfLayers(std::string_view key,
                                          size_t layers,
                                          int32_t low,
                                          int32_t high) const;

 protected:
  StatusOr<int64_t> ReadInt(std::string_view key) const override;
  StatusOr<double> ReadNumber(std::string_view key) const override;
  StatusOr<bool> ReadBool(std::string_view key) const override;
  StatusOr<std::string> ReadText(std::string_view key) const override;
  StatusOr<std::vector<int64_t>> ReadInts(std::string_view key) const override;

 private:
  std::string Key(std::string_view key) const { return prefix_ + std::string(key); }
  // InvalidArgument unless a list has an entry for each layer of the file, and at least `layers`.
  Status CheckEntries(std::string_view key, size_t entries, size_t layers) const;

  const GgufFile& gguf_;
  std::string prefix_;
};

}  // namespace baton
