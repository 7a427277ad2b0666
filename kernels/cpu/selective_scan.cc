#include <algorithm>
#include <cstddef>

#include "common/base/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/recurrent_columns.h"

// The rule RecurrentRule::kSelectiveScan, whose convolution and scan are two ops: what is between
// them reads the convolution of all heads.
namespace baton::cpu {

void CpuRecurrentOps::Convolve(const Tensor& x, const RecurrentArgs& args, const Tensor& out) {
  const RecurrentShape& shape = args.shape;
  CheckArgs(args);
  CheckRecurrentVectors(args);
  CheckColumns(x, shape.input_columns(), "inputs");
  CheckColumns(out, shape.value_numbers(), "outputs");
  if (context_.exchange.failed()) return;
  const int64_t channels = shape.channels();
  ForHeads(
      args,
      shape.convolution_numbers(),
      [&](float* memory, int32_t key_head, std::span<const int32_t> chain) {
        const Plane plane = {FirstByte(args, context_.kv, PlaneKind::kInputs, key_head),
                             {memory, static_cast<size_t>(shape.convolution_numbers())}};
        for (const int32_t sequence : chain) {
          WithState(sequence, {&plane, 1}, [&](const Rows& rows) {
            for (int32_t i = 0; i < rows.count; ++i) {
              const int32_t position = rows.position + i;
              const int64_t first = key_head * channels;
              if (rows.update) {
                std::copy_n(FloatRow(x, rows.first + i) + first,
                            channels,
                            memory + position % shape.kernel * channels);
              }
              ConvolveRow(
                  args, key_head, position, plane.numbers, FloatRow(out, rows.first + i) + first);
            }
          });
        }
      });
}

// One head of one chain, and the memory of the thread that computes it.
struct CpuRecurrentOps::ScanTask {
  const Tensor& v;
  const Tensor& gates;
  const Tensor& k;
  const Tensor& q;
  const Tensor& out;
  const RecurrentArgs& args;
  int32_t key_head = 0;
  // The memory.
  float* state = nullptr;  // [key_dim][value_dim]
  float* rates = nullptr;  // the same
  float* times = nullptr;  // [value_dim]
};

void CpuRecurrentOps::ScanRow(const ScanTask& task, int64_t row, bool update) const {
  const RecurrentShape& shape = task.args.shape;
  const int64_t first = int64_t{task.key_head} * shape.value_dim;
  const float* const gates = FloatRow(task.gates, row) + first;
  const float* const bias = HostData(*task.args.time_bias) + first;
  for (int32_t i = 0; i < shape.value_dim; ++i) task.times[i] = SoftPlus(gates[i] + bias[i]);
  ScanArgs scan;
  scan.k = FloatRow(task.k, row);
  scan.q = FloatRow(task.q, row);
  scan.v = FloatRow(task.v, row) + task.args.first_value + first;
  scan.times = task.times;
  scan.rates = task.rates;
  scan.key_dim = shape.key_dim;
  scan.value_dim = shape.value_dim;
  scan.update = update;
  scan.state = task.state;
  scan.out = FloatRow(task.out, row) + first;
  context_.kernels.scan_state(scan);
  const float* const skip = HostData(*task.args.skip) + first;
  for (int32_t i = 0; i < shape.value_dim; ++i) scan.out[i] += skip[i] * scan.v[i];
}

void CpuRecurrentOps::Scan(const Tensor& v,
                           const Tensor& gates,
                           const Tensor& k,
                           const Tensor& q,
                           const RecurrentArgs& args,
                           const Tensor& out) {
  const RecurrentShape& shape = args.shape;
  CheckArgs(args);
  CheckRecurrentVectors(args);
  BATON_CHECK(args.first_value + shape.value_numbers() <= v.cols,
              "values {} + {} of {}",
              args.first_value,
              shape.value_numbers(),
              v.cols);
  CheckColumns(gates, shape.gate_columns(), "gates");
  CheckColumns(k, shape.key_dim, "keys");
  CheckColumns(q, shape.key_dim, "queries");
  CheckColumns(out, shape.value_numbers(), "outputs");
  if (context_.exchange.failed()) return;
  const int64_t numbers = shape.matrix_numbers();
  ForHeads(args,
           2 * numbers + shape.value_dim,
           [&](float* memory, int32_t key_head, std::span<const int32_t> chain) {
             const ScanTask task = {.v = v,
                                    .gates = gates,
                                    .k = k,
                                    .q = q,
                                    .out = out,
                                    .args = args,
                                    .key_head = key_head,
                                    .state = memory,
                                    .rates = memory + numbers,
                                    .times = memory + 2 * numbers};
             // −e^A of each number of S.
             std::copy_n(HostData(*args.decay) + key_head * numbers, numbers, task.rates);
             context_.kernels.exp_sum(task.rates, numbers, 1.0f, 0.0f);
             for (int64_t i = 0; i < numbers; ++i) task.rates[i] = -task.rates[i];
             const Plane plane = {FirstByte(args, context_.kv, PlaneKind::kMatrices, key_head),
                                  {memory, static_cast<size_t>(numbers)}};
             for (const int32_t sequence : chain) {
               WithState(sequence, {&plane, 1}, [&](const Rows& rows) {
                 for (int32_t i = 0; i < rows.count; ++i)
                   ScanRow(task, rows.first + i, rows.update);
               });
             }
           });
}

}  // namespace baton::cpu
