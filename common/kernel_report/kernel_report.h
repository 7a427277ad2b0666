#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cuda/table/attention_request.h"
#include "kernels/dtype.h"

// Which kernels would compute the steps of a model on a device, by the kernel table, and why.
namespace baton {

struct KernelReportOptions {
  bool deterministic = false;
  bool fp8_weights = false;
  DType kv = DType::kBF16;
  int32_t block_tokens = 16;
  int32_t context = 2048;  // positions of each decoding sequence
  int64_t max_rows = 8192;
};

// The kernel of an op for a range of rows.
struct KernelUse {
  std::string op = {};     // of the graph, with its shape
  std::string types = {};  // of its operands
  int64_t first_row = 1;
  int64_t last_row = 1;
  std::string kernel = {};  // empty: none computes the op
  std::string why = {};
  std::string order = {};   // of sums, when it does not depend on the number of rows
  std::string others = {};  // what kernels of their own do; empty: nothing
  // Kernels that come first in the table, and why they are not used with first_row rows.
  std::vector<std::pair<std::string, std::string>> refused = {};
};

// The uses on a GPU, for each op of a step with logits that differs in shape or types, in the order
// of the step. Ranges of rows end where the choice changes. The CUDA backend must have the model's
// variants of ops (cuda::CheckVariants).
std::vector<KernelUse> ReportKernels(const ModelSpec& spec,
                                     const cuda::DecodeLimits& limits,
                                     const KernelReportOptions& options);

// Whether each op has a kernel on the GPU. Errors: FailedPrecondition, which names the first op
// without one and why each kernel is refused.
Status CheckKernels(std::span<const KernelUse> uses, const cuda::DeviceProperties& device);

// The use on a CPU: the instruction set computes every op.
KernelUse ReportCpuKernels(CpuIsa chosen, int64_t max_rows);

nlohmann::json ToJson(const KernelUse& use);

}  // namespace baton
