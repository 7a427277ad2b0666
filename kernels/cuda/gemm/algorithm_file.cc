#include "kernels/cuda/gemm/algorithm_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <type_traits>

#include <fmt/format.h>

#include "common/base/hash.h"
#include "common/base/mapped_file.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kFormat = 1;

struct AlgorithmFileHeader {
  uint32_t magic = 0x4d474742;  // "BGGM"
  uint32_t format = kFormat;
  uint64_t checksum = 0;  // XXH3-64 of the bytes after the header
  uint32_t identity_bytes = 0;
  uint32_t records = 0;
};
static_assert(sizeof(AlgorithmFileHeader) == 24);

struct AlgorithmRecord {
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  std::array<uint64_t, 8> algorithm = {};
  int32_t rows = 0;
  int32_t n = 0;
  int32_t k = 0;
  std::array<uint32_t, 3> alignment = {};
  uint8_t dtype = 0;
  uint8_t out_dtype = 0;
  uint8_t bias = 0;
  uint8_t accumulate = 0;
  uint8_t scaled = 0;
  std::array<uint8_t, 3> unused = {};
};
static_assert(sizeof(AlgorithmRecord) == 112 && std::is_trivially_copyable_v<AlgorithmRecord>);
static_assert(sizeof(AlgorithmRecord::algorithm) == sizeof(cublasLtMatmulAlgo_t));

AlgorithmRecord RecordOf(const ChosenAlgorithm& chosen) {
  const GemmKey& key = chosen.key;
  AlgorithmRecord record;
  record.x_stride = key.x_stride;
  record.out_stride = key.out_stride;
  std::memcpy(record.algorithm.data(), &chosen.algorithm, sizeof(chosen.algorithm));
  record.rows = key.rows;
  record.n = key.n;
  record.k = key.k;
  record.alignment = key.alignment;
  record.dtype = static_cast<uint8_t>(key.dtype);
  record.out_dtype = static_cast<uint8_t>(key.out_dtype);
  record.bias = key.bias ? 1 : 0;
  record.accumulate = key.accumulate ? 1 : 0;
  record.scaled = key.scaled ? 1 : 0;
  return record;
}

ChosenAlgorithm ChosenOf(const AlgorithmRecord& record) {
  ChosenAlgorithm chosen = {.key = {.rows = record.rows,
                                    .n = record.n,
                                    .k = record.k,
                                    .x_stride = record.x_stride,
                                    .out_stride = record.out_stride,
                                    .dtype = static_cast<DType>(record.dtype),
                                    .out_dtype = static_cast<DType>(record.out_dtype),
                                    .bias = record.bias != 0,
                                    .accumulate = record.accumulate != 0,
                                    .scaled = record.scaled != 0,
                                    .alignment = record.alignment},
                            .algorithm = {}};
  std::memcpy(&chosen.algorithm, record.algorithm.data(), sizeof(chosen.algorithm));
  return chosen;
}

Status SystemError(std::string_view what, const std::string& path, int error) {
  return MakeStatus(StatusCode::kUnavailable,
                    "cannot {} '{}': {}",
                    what,
                    path,
                    std::generic_category().message(error));
}

}  // namespace

std::string AlgorithmPath(const std::string& folder, std::string_view identity) {
  const uint64_t hash = Xxh3(std::as_bytes(std::span(identity)));
  return fmt::format("{}/gemm-{:016x}.bin", folder, hash);
}

StatusOr<std::vector<ChosenAlgorithm>> ReadAlgorithms(const std::string& path,
                                                      std::string_view identity) {
  BATON_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  std::span<const std::byte> bytes = file.bytes();
  AlgorithmFileHeader header;
  if (bytes.size() < sizeof(header)) return InvalidArgument("'{}' is cut short", path);
  std::memcpy(&header, bytes.data(), sizeof(header));
  bytes = bytes.subspan(sizeof(header));
  if (header.magic != AlgorithmFileHeader{}.magic || header.format != kFormat) {
    return InvalidArgument("'{}' is not a file of GEMM algorithms of format {}", path, kFormat);
  }
  const size_t size = header.identity_bytes + size_t{header.records} * sizeof(AlgorithmRecord);
  if (bytes.size() != size || Xxh3(bytes) != header.checksum) {
    return InvalidArgument("'{}' is damaged", path);
  }
  const std::string_view found(reinterpret_cast<const char*>(bytes.data()), header.identity_bytes);
  if (found != identity) {
    return InvalidArgument("'{}' was written for '{}'; this is '{}'", path, found, identity);
  }
  std::vector<ChosenAlgorithm> algorithms;
  algorithms.reserve(header.records);
  for (uint32_t i = 0; i < header.records; ++i) {
    AlgorithmRecord record;
    std::memcpy(&record, bytes.data() + header.identity_bytes + i * sizeof(record), sizeof(record));
    algorithms.push_back(ChosenOf(record));
  }
  return algorithms;
}

Status WriteAlgorithms(const std::string& path,
                       std::string_view identity,
                       const std::vector<ChosenAlgorithm>& algorithms) {
  std::string bytes(identity);
  for (const ChosenAlgorithm& chosen : algorithms) {
    const AlgorithmRecord record = RecordOf(chosen);
    bytes.append(reinterpret_cast<const char*>(&record), sizeof(record));
  }
  const AlgorithmFileHeader header = {.checksum = Xxh3(std::as_bytes(std::span(bytes))),
                                      .identity_bytes = static_cast<uint32_t>(identity.size()),
                                      .records = static_cast<uint32_t>(algorithms.size())};
  const std::string folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return SystemError("create the folder", folder, error.value());
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  std::ofstream out(fresh, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header), sizeof(header));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) return SystemError("write", fresh, errno);
  std::filesystem::rename(fresh, path, error);
  return error ? SystemError("replace", path, error.value()) : OkStatus();
}

}  // namespace baton::cuda
