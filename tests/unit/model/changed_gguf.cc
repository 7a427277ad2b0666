#include "tests/unit/model/changed_gguf.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/model/gguf_file.h"
#include "tests/unit/model/step_runner.h"
#include "tests/unit/model/tiny_gguf.h"

namespace baton {
namespace {

template <class T>
std::string BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string TextOf(std::string_view text) {
  return BytesOf(uint64_t{text.size()}) + std::string(text);
}

}  // namespace

ChangedGguf::ChangedGguf(const std::string& name) : bytes_(TinyGgufBytes(name)) {}

void ChangedGguf::Set(std::string_view key, uint32_t value) {
  Write(key, sizeof(uint32_t), value);
}

void ChangedGguf::SetFloat(std::string_view key, float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  Set(key, bits);
}

void ChangedGguf::SetEntry(std::string_view key, size_t index, uint32_t value) {
  Write(key, 2 * sizeof(uint32_t) + sizeof(uint64_t) + index * sizeof(uint32_t), value);
}

void ChangedGguf::Add(std::string_view key, uint32_t value) {
  constexpr uint32_t kUint32 = 4;
  Insert(TextOf(key) + BytesOf(kUint32) + BytesOf(value));
}

void ChangedGguf::SetArchitecture(std::string_view old, std::string_view other) {
  PlaceOf(old);
  for (size_t at = bytes_.find(old); at != std::string::npos; at = bytes_.find(old, at + 1)) {
    uint64_t length = 0;
    char* const place = bytes_.data() + at - sizeof(length);
    std::memcpy(&length, place, sizeof(length));
    length += other.size() - old.size();
    std::memcpy(place, &length, sizeof(length));
    bytes_.replace(at, old.size(), other);
  }
  Insert("");
}

void ChangedGguf::SetType(std::string_view tensor, uint32_t type) {
  Write(tensor, sizeof(uint32_t) + 3 * sizeof(uint64_t), type);
}

void ChangedGguf::Rename(std::string_view name, std::string_view other) {
  BATON_CHECK(name.size() == other.size(), "{} and {} differ in length", name, other);
  std::ranges::copy(other, bytes_.begin() + static_cast<ptrdiff_t>(PlaceOf(name)));
}

void ChangedGguf::Negate(const std::string& tensor) {
  folder_.Write("model.gguf", bytes_);
  const auto gguf = GgufFile::Open(folder_.path() + "/model.gguf");
  BATON_CHECK(gguf.ok(), "{}", Message(gguf.status()));
  const auto found = std::ranges::find((*gguf)->tensors(), tensor, &FileTensor::name);
  BATON_CHECK(found != (*gguf)->tensors().end(), "the file has no {}", tensor);
  const std::string_view old(reinterpret_cast<const char*>(found->bytes.data()),
                             found->bytes.size());
  const size_t place = bytes_.find(old);
  for (size_t i = sizeof(float) - 1; i < old.size(); i += sizeof(float)) {
    bytes_[place + i] = static_cast<char>(bytes_[place + i] ^ 0x80);
  }
}

StatusOr<OpenedModel> ChangedGguf::Open() const {
  folder_.Write("model.gguf", bytes_);
  return OpenModel(folder_.path() + "/model.gguf");
}

std::string ChangedGguf::Error() const {
  const auto model = Open();
  if (!model.ok()) return std::string(Message(model.status()));
  const auto runner = StepRunner::Create(model->spec, *model->weights);
  return runner.ok() ? "no error" : std::string(Message(runner.status()));
}

void ChangedGguf::Write(std::string_view name, size_t distance, uint32_t value) {
  std::memcpy(bytes_.data() + PlaceOf(name) + name.size() + distance, &value, sizeof(value));
}

void ChangedGguf::Insert(std::string added) {
  constexpr size_t kHeader = 24;
  constexpr size_t kKeyCount = 16;
  constexpr size_t kAlignment = 32;
  constexpr uint32_t kString = 8;
  const uint64_t keys = added.empty() ? 1 : 2;
  added += TextOf("test.padding" + std::to_string(bytes_.size())) + BytesOf(kString);
  const size_t size = bytes_.size() + added.size() + sizeof(uint64_t);
  added += TextOf(std::string((size_ - size) % kAlignment, '-'));
  bytes_.insert(kHeader, added);
  uint64_t count = 0;
  std::memcpy(&count, bytes_.data() + kKeyCount, sizeof(count));
  count += keys;
  std::memcpy(bytes_.data() + kKeyCount, &count, sizeof(count));
}

size_t ChangedGguf::PlaceOf(std::string_view name) const {
  const size_t place = bytes_.find(name);
  BATON_CHECK(place != std::string::npos, "the file has no {}", name);
  return place;
}

ModelSpec SpecWithout(const std::string& file, const std::string& key) {
  ChangedGguf changed(file);
  std::string other = key;
  other.back() = '_';
  changed.Rename(key, other);
  auto model = changed.Open();
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  return std::move(model->spec);
}

}  // namespace baton
