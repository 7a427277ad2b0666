#include "common/model/gguf_split.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/ascii.h>
#include <fmt/format.h>

namespace baton {
namespace {

constexpr int64_t kMaxParts = 1024;
constexpr std::string_view kExtension = ".gguf";
constexpr size_t kSuffixLength = std::string_view("-00001-of-00003").size();

std::string Suffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}", number, count);
}

// What a file says about the split. A model in one file is part 1 of 1.
struct Part {
  int64_t number = 1;
  int64_t count = 1;
  std::optional<int64_t> tensors;  // of all parts
};

StatusOr<Part> PartOf(const GgufFile& file) {
  Part part;
  if (file.Has("split.count")) {
    BATON_ASSIGN_OR_RETURN(part.count, file.Int("split.count"));
  }
  if (part.count <= 1) return Part();
  BATON_ASSIGN_OR_RETURN(const int64_t index, file.Int("split.no"));
  if (part.count > kMaxParts || index < 0 || index >= part.count) {
    return InvalidArgument(
        "{}: split.no is {} and split.count is {}; split.count must be at most {}, and split.no 0 "
        "to split.count - 1",
        file.path(),
        index,
        part.count,
        kMaxParts);
  }
  part.number = index + 1;
  if (file.Has("split.tensors.count")) {
    BATON_ASSIGN_OR_RETURN(part.tensors, file.Int("split.tensors.count"));
  }
  return part;
}

Status CheckIsFirst(const std::string& path, const Part& part) {
  if (part.number == 1) return OkStatus();
  const std::string first = PathOfPart(path, 1, part.count);
  return InvalidArgument("{} is part {} of {} of a split model; give the first part{}{}",
                         path,
                         part.number,
                         part.count,
                         first.empty() ? "" : ", ",
                         first);
}

// The tensors of all parts have different names and the number that the parts state.
Status CheckTensors(const GgufFile& first,
                    const Part& part,
                    const std::vector<std::unique_ptr<GgufFile>>& others) {
  absl::flat_hash_map<std::string_view, std::string_view> files;
  const auto add = [&files](const GgufFile& file) -> Status {
    for (const FileTensor& tensor : file.tensors()) {
      const auto [found, added] = files.emplace(tensor.name, tensor.file);
      if (added) continue;
      return InvalidArgument(
          "tensor {} is in {} and in {}", tensor.name, found->second, file.path());
    }
    return OkStatus();
  };
  BATON_RETURN_IF_ERROR(add(first));
  for (const auto& other : others) BATON_RETURN_IF_ERROR(add(*other));
  if (files.size() > kMaxTensors) {
    return InvalidArgument("{} and its other parts have {} tensors; at most {} are allowed",
                           first.path(),
                           files.size(),
                           kMaxTensors);
  }
  if (!part.tensors || std::cmp_equal(*part.tensors, files.size())) return OkStatus();
  return InvalidArgument("{}: split.tensors.count is {}, but the {} parts have {} tensors",
                         first.path(),
                         *part.tensors,
                         part.count,
                         files.size());
}

}  // namespace

StatusOr<std::vector<std::unique_ptr<GgufFile>>> OpenOtherParts(const GgufFile& first) {
  std::vector<std::unique_ptr<GgufFile>> others;
  BATON_ASSIGN_OR_RETURN(const Part part, PartOf(first));
  if (part.count == 1) return others;
  BATON_RETURN_IF_ERROR(CheckIsFirst(first.path(), part));
  for (int64_t number = 2; number <= part.count; ++number) {
    const std::string path = PathOfPart(first.path(), number, part.count);
    if (path.empty()) {
      return InvalidArgument(
          "{} is the first part of a split model; its name must end with {}{}, so that the other "
          "parts are found beside it",
          first.path(),
          Suffix(1, part.count),
          kExtension);
    }
    auto other = GgufFile::OpenPart(path);
    if (!other.ok()) {
      return Annotate(
          other.status(),
          fmt::format("part {} of {} of the split model {}", number, part.count, first.path()));
    }
    BATON_ASSIGN_OR_RETURN(const Part its, PartOf(**other));
    if (its.number != number || its.count != part.count || its.tensors != part.tensors) {
      return InvalidArgument(
          "{} is part {} of {} (split.tensors.count {}); it must be part {} of {} ({}), as {} says",
          path,
          its.number,
          its.count,
          its.tensors.value_or(0),
          number,
          part.count,
          part.tensors.value_or(0),
          first.path());
    }
    others.push_back(*std::move(other));
  }
  BATON_RETURN_IF_ERROR(CheckTensors(first, part, others));
  return others;
}

std::string PathOfPart(std::string_view path, int64_t number, int64_t count) {
  if (!path.ends_with(kExtension)) return "";
  const std::string_view stem = path.substr(0, path.size() - kExtension.size());
  const std::string_view name = WithoutPartNumber(stem);
  if (name.size() == stem.size() || !stem.ends_with(fmt::format("-of-{:05}", count))) return "";
  return fmt::format("{}{}{}", name, Suffix(number, count), kExtension);
}

std::string_view WithoutPartNumber(std::string_view stem) {
  if (stem.size() <= kSuffixLength) return stem;
  std::string shape(stem.substr(stem.size() - kSuffixLength));
  std::ranges::replace_if(shape, absl::ascii_isdigit, '0');
  return shape == Suffix(0, 0) ? stem.substr(0, stem.size() - kSuffixLength) : stem;
}

}  // namespace baton
