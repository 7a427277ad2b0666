#include "kernels/cuda/graph/op_places.h"

namespace baton::cuda {
namespace {

Place ScalesOf(const float* scales, int64_t rows) {
  return Place::Bytes(scales, rows * static_cast<int64_t>(sizeof(float)));
}

Place Matrix(const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride) {
  const auto bytes = static_cast<int64_t>(ShapeOf(dtype).bytes);
  const auto* const begin = static_cast<const std::byte*>(data);
  return {.data = begin,
          .end = begin + ((rows - 1) * stride + cols) * bytes,
          .rows = rows,
          .row_bytes = cols * bytes,
          .stride = stride * bytes};
}

// Collects the operands of one op.
class Collector {
 public:
  Collector(std::vector<Place>& reads, std::vector<Place>& writes)
      : reads_(reads), writes_(writes) {}

  void Reads(const Place& place) {
    if (place.data != nullptr && place.row_bytes > 0) reads_.push_back(place);
  }
  void Writes(const Place& place) {
    if (place.data != nullptr && place.row_bytes > 0) writes_.push_back(place);
  }
  void Reads(const Tensor& x) { Reads(Place::Of(x)); }
  void Writes(const Tensor& x) { Writes(Place::Of(x)); }
  void Updates(const Tensor& x) {
    Reads(x);
    Writes(x);
  }
  void Writes(const Fp8Rows& x) {
    Writes(Place::Bytes(x.data, x.rows * x.cols));
    Writes(ScalesOf(x.scales, x.rows));
  }

  void operator()(const EmbedOp& op) { Writes(op.out); }
  void operator()(const AddOp& op) {
    Reads(op.delta);
    Updates(op.residual);
  }
  void operator()(const QuantizeOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const RescaleOp& op) {
    Reads(ScalesOf(op.scales.rows, op.x.rows));
    Updates(op.x);
  }
  void operator()(const NormOp& op) {
    if (const Tensor* const input = TensorIn(op.input)) Reads(*input);
    if (const auto* const delta = std::get_if<DeltaInput>(&op.input)) {
      Reads(ScalesOf(delta->scales.rows, delta->delta.rows));
    }
    Reads(op.residual);
    if (!std::holds_alternative<NoInput>(op.input)) Writes(op.residual);
    if (op.fp8_out.data != nullptr) {
      Writes(op.fp8_out);
    } else {
      Writes(op.out);
    }
  }
  void operator()(const ActivationNormOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const MatMulOp& op) {
    const GemmProblem& problem = op.problem;
    if (problem.norm_weight != nullptr) {
      Reads(Place::Bytes(problem.residual, problem.k * static_cast<int64_t>(sizeof(float))));
    } else {
      Reads(Place::InputOf(problem));
    }
    Reads(ScalesOf(problem.x_scales, problem.rows));
    if (problem.accumulate) Reads(Place::OutputOf(problem));
    Writes(Place::OutputOf(problem));
  }
  void operator()(const SiluMulOp& op) {
    Reads(op.gate_up);
    Reads(ScalesOf(op.scales.rows, op.gate_up.rows));
    if (op.fp8_out.data != nullptr) {
      Writes(op.fp8_out);
    } else {
      Writes(op.out);
    }
  }
  void operator()(const ExpertsOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const RoundOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const AnglesOp& op) { Writes(Place::Bytes(op.angles, op.pairs)); }
  void operator()(const RopeOp& op) {
    Reads(Place::Bytes(op.angles, op.pairs));
    Reads(ScalesOf(op.scales.rows, op.qkv.rows));
    Updates(op.qkv);
  }
  void operator()(const AttentionOp& op) {
    Reads(op.qkv);
    Writes(op.packed);
    if (op.fp8_out.data != nullptr) {
      Writes(op.fp8_out);
    } else {
      Writes(op.out);
    }
  }
  void operator()(const GatherOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const CopyRowsOp& op) { Reads(op.x); }
  void operator()(const SampleOp& op) { Updates(op.logits); }
  void operator()(const NotifyOp& /*op*/) {}
  void operator()(const FamilyOp& op) { std::visit(*this, op); }
  void operator()(const LatentOp& op) { std::visit(*this, op); }
  void operator()(const RecurrentOp& op) { std::visit(*this, op); }
  void operator()(const ExchangeOp& op) { std::visit(*this, op); }

  void operator()(const ScaleOp& op) { Updates(op.x); }
  void operator()(const LayerNormOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const ActivateOp& op) { Updates(op.x); }
  void operator()(const MultiplyOp& op) {
    Reads(op.factors);
    Updates(op.x);
  }
  void operator()(const SoftCapOp& op) { Updates(op.x); }
  void operator()(const SigmoidGateOp& op) {
    Reads(op.gate);
    Updates(op.x);
  }
  void operator()(const HeadSquaresOp& op) {
    Reads(op.qkv);
    Writes(op.out);
  }
  void operator()(const ProjectionNormOp& op) {
    Reads(op.squares);
    Updates(op.qkv);
  }
  void operator()(const HeadLayerNormOp& op) { Updates(op.qkv); }
  void operator()(const BiasOp& op) { Updates(op.x); }
  void operator()(const DotOp& op) {
    Reads(op.x);
    Writes(op.out);
  }

  void operator()(const WriteLatentOp& op) {
    Reads(AnglesOf(op.angles));
    Updates(op.kv);
  }
  void operator()(const HeadGemmOp& op) {
    Reads(AnglesOf(op.angles));
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const AttendLatentsOp& op) {
    Reads(op.q);
    Writes(op.out);
  }

  void operator()(const ConvolveOp& op) {
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const UpdateStatesOp& op) {
    Reads(op.convolved);
    Reads(op.x);
    Reads(op.gates);
    Writes(op.out);
  }
  void operator()(const FinishRowsOp& op) {
    Reads(op.outputs);
    Reads(op.convolved);
    Reads(op.x);
    Writes(op.out);
  }
  void operator()(const DecodeRowsOp& op) {
    Reads(op.x);
    Reads(op.gates);
    Writes(op.out);
  }
  void operator()(const ChunkRowsOp& op) {
    Reads(op.x);
    Reads(op.gates);
    Writes(op.memory);
    if (!op.all_rows) Reads(op.out);  // the other rows stay
    Writes(op.out);
  }
  void operator()(const ScanOp& op) {
    Reads(op.v);
    Reads(op.gates);
    Reads(op.k);
    Reads(op.q);
    Writes(op.out);
  }

  void operator()(const ReduceOp& op) { Updates(op.x); }
  void operator()(const PutOp& op) {
    for (const Put& put : op.puts) Reads(Place::Bytes(put.copy.from, Size(put.copy)));
  }
  void operator()(const AwaitPutOp& op) {
    for (const ByteCopy& copy : op.copies) {
      Reads(Place::Bytes(copy.from, Size(copy)));
      Writes(Place::Bytes(copy.to, Size(copy)));
    }
  }
  void operator()(const GatherColumnsOp& op) {
    Reads(op.mine);
    Updates(op.whole);
  }
  void operator()(const BarrierOp& /*op*/) {}
  void operator()(const StageOp& op) { op.send ? Reads(op.x) : Writes(op.x); }
  void operator()(const ShareTokensOp& /*op*/) {}

 private:
  // As that of AnglesOp.
  static Place AnglesOf(const LatentAngles& angles) {
    return Place::Bytes(angles.at, angles.pairs);
  }
  static int64_t Size(const ByteCopy& copy) { return static_cast<int64_t>(copy.bytes); }

  std::vector<Place>& reads_;
  std::vector<Place>& writes_;
};

}  // namespace

Place Place::Bytes(const void* data, int64_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return {.data = begin, .end = begin + bytes, .rows = 1, .row_bytes = bytes, .stride = bytes};
}

Place Place::Of(const Tensor& x) {
  return Matrix(x.data, x.dtype, x.rows, x.cols, x.stride);
}

Place Place::InputOf(const GemmProblem& problem) {
  return Matrix(problem.x, problem.x_dtype, problem.rows, problem.k, problem.x_stride);
}

Place Place::OutputOf(const GemmProblem& problem) {
  const int64_t cols = problem.silu_mul ? problem.n / 2 : problem.n;
  return Matrix(problem.out, problem.out_dtype, problem.rows, cols, problem.out_stride);
}

bool OverlapInRows(const Place& a, const Place& b) {
  if (a.data == b.data || a.stride != b.stride || a.stride == 0) return true;
  // Where the columns of `b` begin after those of `a`, within a row of the matrix.
  const int64_t after = ((b.data - a.data) % a.stride + a.stride) % a.stride;
  return after < a.row_bytes || after + b.row_bytes > a.stride;
}

void AppendPlaces(const StepOp& op, std::vector<Place>& reads, std::vector<Place>& writes) {
  std::visit(Collector(reads, writes), op);
}

}  // namespace baton::cuda
