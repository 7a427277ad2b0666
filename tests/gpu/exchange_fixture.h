#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/exchange/group_exchange.h"
#include "kernels/cuda/exchange/listed_exchange.h"
#include "tests/gpu/rank_threads.h"

// What the tests of exchanges between GPUs share.
namespace baton::cuda {

// A matrix on a rank's device, and scratch memory for its exchange.
class Rows {
 public:
  // All bytes are 0xff, which are NaNs and empty slots.
  Status Allocate(DType dtype, int64_t rows, int64_t cols, int64_t stride, size_t scratch_bytes);
  size_t bytes() const;
  // All numbers, gaps included.
  Status Write(const std::vector<float>& values);
  StatusOr<std::vector<float>> Read() const;
  // Gives the 4 bytes at `at` the bits of an empty slot.
  static Status Empty(std::byte* at);
  const Tensor& tensor() const { return tensor_; }
  std::byte* scratch() const { return scratch_.at(); }

 private:
  Tensor tensor_;
  DeviceMemory memory_;
  DeviceMemory scratch_;
};

// `value` as a number of `dtype`.
float Rounded(DType dtype, float value);
// Numbers between −8 and 8.
std::vector<float> Random(DType dtype, size_t count, uint32_t seed);

// The sum of number `i` of all parts.
float SumOf(DType dtype, const std::vector<std::vector<float>>& parts, size_t i);
// Checks what `rank` has after the ranks have added their rows: the sums of `parts`, with the signs
// of zeros, and in the gaps between the rows its own numbers. The first `nans` numbers are NaN.
// `rows` gives the type and the shape.
void ExpectSums(const Tensor& rows,
                const std::vector<std::vector<float>>& parts,
                int rank,
                const std::vector<float>& got,
                size_t nans = 0);

// A group of as many ranks as the parameter says. A file of tests has a class of its own, because
// it instantiates the class for all sizes of groups.
class GpuExchange : public testing::TestWithParam<int> {
 protected:
  using Ops = std::vector<ExchangeOp>;

  void SetUp() override;
  void TearDown() override;
  // `pipeline`: stages instead of tensor ranks, which use NCCL without `stage_slots`.
  void Open(bool pipeline, bool stage_slots = true);

  static int ranks() { return GetParam(); }
  template <class T>
  static T& at(std::vector<T>& all, int rank) {
    return all[static_cast<size_t>(rank)];
  }
  template <class T>
  static const T& at(const std::vector<T>& all, int rank) {
    return all[static_cast<size_t>(rank)];
  }
  static void Expect(const std::vector<Status>& results);
  // Runs `body` for every rank on its thread; none may fail.
  void ForRanks(const std::function<Status(int rank)>& body) { Expect(ranks_->Run(body)); }

  // Allocates the matrix of a rank in place of the one before.
  StatusOr<Rows*> Allocate(
      int rank, DType dtype, int64_t rows, int64_t cols, int64_t stride, size_t scratch_bytes = 0);
  // The ops of a step in which `body` calls exchanges, as a rank with these options lists them.
  // `count` tokens are shared at its end.
  static Ops List(const ListedExchange::Options& options,
                  std::byte* scratch,
                  const std::function<void(ListedExchange&)>& body,
                  int32_t* tokens = nullptr,
                  int32_t count = 0);
  // The same of a tensor rank of the group with slots of `slot_bytes` bytes.
  static Ops List(int rank,
                  size_t slot_bytes,
                  std::byte* scratch,
                  const std::function<void(ListedExchange&)>& body,
                  int32_t* tokens = nullptr,
                  int32_t count = 0);
  Status LaunchAll(int rank, const Ops& ops);
  // Captures what `body` issues to the rank's stream.
  StatusOr<cudaGraphExec_t> Capture(int rank, const std::function<Status()>& body);
  // Launches the ops, or a graph of them, and waits.
  Status Launch(int rank, const Ops& ops, bool graph);

  std::unique_ptr<RankThreads> ranks_;
  std::vector<std::unique_ptr<GroupExchange>> exchanges_;
  std::vector<cudaStream_t> streams_;
  std::vector<std::unique_ptr<Rows>> rows_;
};

}  // namespace baton::cuda
