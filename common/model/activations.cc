#include "common/model/activations.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace baton {
namespace {

// The stride of rows is a multiple of this many elements, so that vector loads stay within cache
// lines.
constexpr int64_t kRowMultiple = 16;

// The most rows that a value in each buffer has.
std::vector<int64_t> RowsOfBuffers(const DecoderGraphs& graphs, int64_t rows, int64_t logit_rows) {
  std::vector<int64_t> most(graphs.buffers.size(), 0);
  for (const StepGraphs* kind : {&graphs.with_logits, &graphs.without_logits}) {
    for (const graph::StepGraph* graph : {&kind->stage, &kind->answer}) {
      for (const graph::Value& value : graph->values()) {
        const std::array<int64_t, 3> counts = {rows, logit_rows, 1};
        int64_t& room = most[static_cast<size_t>(value.buffer)];
        room = std::max(room, counts[static_cast<size_t>(value.rows)]);
      }
    }
  }
  return most;
}

size_t BytesOf(const Tensor& tensor) {
  return static_cast<size_t>(tensor.rows * tensor.stride) * ShapeOf(tensor.dtype).bytes;
}

// Host memory is committed only when it is first touched, so the total is checked before the first
// allocation.
Status CheckRoom(const std::vector<Tensor>& tensors, int32_t max_rows, Device& device) {
  size_t bytes = 0;
  for (const Tensor& one : tensors) bytes += BytesOf(one);
  const size_t free_bytes = device.free_bytes();
  if (bytes <= free_bytes) return OkStatus();
  return MakeStatus(StatusCode::kResourceExhausted,
                    "activations of steps of {} tokens (engine.max_step_tokens) take {} bytes on "
                    "{}; {} bytes are free beside the weights",
                    max_rows,
                    bytes,
                    device.name(),
                    free_bytes);
}

}  // namespace

StatusOr<Activations> Activations::Allocate(const DecoderGraphs& graphs,
                                            int32_t max_rows,
                                            int32_t max_logit_rows,
                                            Ops& ops) {
  const std::vector<int64_t> rows =
      RowsOfBuffers(graphs, ops.PaddedRows(max_rows), ops.PaddedRows(max_logit_rows));
  Activations all;
  for (size_t i = 0; i < rows.size(); ++i) {
    const graph::BufferShape& shape = graphs.buffers[i];
    const int64_t stride = (shape.cols + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
    all.tensors.push_back({nullptr, shape.dtype, rows[i], shape.cols, stride});
  }
  BATON_RETURN_IF_ERROR(CheckRoom(all.tensors, max_rows, ops.device()));
  for (Tensor& one : all.tensors) {
    if (one.rows == 0) continue;
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                           ops.device().Allocate(BytesOf(one), Sharing::kPrivate));
    one.data = buffer->data();
    all.buffers.push_back(std::move(buffer));
  }
  return all;
}

}  // namespace baton
