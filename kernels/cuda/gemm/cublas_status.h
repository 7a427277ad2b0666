#pragma once

#include <cublasLt.h>

#include <string_view>

#include "common/base/status.h"

namespace baton::cuda {

// `what` is the call that returned `error`.
inline Status ToStatus(cublasStatus_t error, std::string_view what) {
  if (error == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return MakeStatus(
      StatusCode::kInternal, "cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(error));
}

#define BATON_CUBLAS_RETURN_IF_ERROR(expression) \
  BATON_RETURN_IF_ERROR(ToStatus(expression, #expression))

}  // namespace baton::cuda
