// Measures the quality that a model loses in FP8, on texts: the perplexity relative to bf16
// (`ratio`, with its standard deviation), and half the mean square of the differences between the
// tokens' log-likelihoods (`half_mean_square`), which estimates the Kullback–Leibler divergence and
// depends less on the texts. Prints a JSON line for each combination of bf16 and FP8 weights with
// a bf16 and an FP8 KV cache. Usage: gpu_quality_bench MODEL TOKENS_A_STEP TEXT_FILE...

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "common/model/open_model.h"
#include "common/model/tokenizer_source.h"
#include "common/text/tokenizer.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "tests/unit/model/step_runner.h"

namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

constexpr size_t kPiece = 512;  // tokens of a piece; each piece is computed without earlier context

StatusOr<std::vector<Tokens>> PiecesOf(const std::string& model, std::span<char* const> paths) {
  BATON_ASSIGN_OR_RETURN(TokenizerSpec spec, LoadTokenizerSpec(model));
  BATON_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Create(std::move(spec)));
  std::vector<Tokens> pieces;
  for (const char* const path : paths) {
    BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const Tokens tokens = tokenizer.Encode(text, {});
    for (size_t at = 0; at + kPiece <= tokens.size(); at += kPiece) {
      const auto begin = tokens.begin() + static_cast<ptrdiff_t>(at);
      pieces.emplace_back(begin, begin + kPiece);
    }
  }
  if (pieces.empty()) return InvalidArgument("no text has {} tokens", kPiece);
  return pieces;
}

// Turns the logits of steps into negative log-likelihoods of the tokens that follow.
class Judge final {
 public:
  // The next steps compute this piece.
  void Begin(const Tokens& piece) {
    piece_ = piece;
    row_ = 0;
  }
  void Read(const Tensor& logits) {
    const auto cols = static_cast<size_t>(logits.cols);
    const auto rows = static_cast<size_t>(logits.rows);
    const size_t row_bytes = cols * sizeof(float);
    BATON_CHECK(host_.Reserve(rows * row_bytes).ok(), "no pinned memory");
    const cudaError_t error = cudaMemcpy2D(host_.data(),
                                           row_bytes,
                                           logits.data,
                                           static_cast<size_t>(logits.stride) * sizeof(float),
                                           row_bytes,
                                           rows,
                                           cudaMemcpyDeviceToHost);
    BATON_CHECK(error == cudaSuccess, "{}", cudaGetErrorString(error));
    const size_t judged = std::min(rows, piece_.size() - 1 - row_);
    const size_t first = losses_.size();
    losses_.resize(first + judged);
    const auto judge_every = [&](size_t from, size_t step) {
      for (size_t i = from; i < judged; i += step) {
        const auto* const row = reinterpret_cast<const float*>(host_.data()) + i * cols;
        losses_[first + i] = NegativeLogLikelihood({row, cols}, piece_[row_ + i + 1]);
      }
    };
    const size_t threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> running;
    for (size_t i = 0; i < threads; ++i) running.emplace_back(judge_every, i, threads);
    running.clear();
    row_ += rows;
  }
  std::vector<double> Take() { return std::exchange(losses_, {}); }

 private:
  cuda::PinnedMemory host_;
  std::span<const TokenId> piece_;
  size_t row_ = 0;  // the next row of the piece
  std::vector<double> losses_;
};

struct Way {
  bool fp8_weights;
  DType kv_dtype;
};

StatusOr<std::vector<double>> LossesOf(cuda::CudaDevice& device,
                                       const OpenedModel& model,
                                       const Way& way,
                                       size_t step_tokens,
                                       const std::vector<Tokens>& pieces) {
  BATON_ASSIGN_OR_RETURN(const auto ops, MakeCudaOps(device, {.fp8_weights = way.fp8_weights}));
  const auto rows = static_cast<int32_t>(step_tokens);
  RunnerOptions options;
  options.kv_dtype = way.kv_dtype;
  options.limits = {rows, rows, way.kv_dtype == DType::kFp8};
  Judge judge;
  const auto read = [&](const Tensor& logits) {
    judge.Read(logits);
    return std::vector<Logits>();
  };
  BATON_ASSIGN_OR_RETURN(
      const auto runner,
      StepRunner::Create(model.spec, *model.weights, options, {ops.get(), read}));
  for (const Tokens& piece : pieces) {
    runner->Reset();
    judge.Begin(piece);
    runner->RunAll(0, piece, step_tokens);
  }
  return judge.Take();
}

Status Compare(const std::string& path, size_t step_tokens, std::span<char* const> texts) {
  BATON_ASSIGN_OR_RETURN(const std::vector<Tokens> pieces, PiecesOf(path, texts));
  BATON_ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(path));
  BATON_ASSIGN_OR_RETURN(const auto device, cuda::CudaDevice::Open(0));
  std::vector<double> exact;
  for (const bool fp8_weights : {false, true}) {
    for (const DType kv_dtype : {DType::kBF16, DType::kFp8}) {
      BATON_ASSIGN_OR_RETURN(
          const auto losses,
          LossesOf(*device, model, Way{fp8_weights, kv_dtype}, step_tokens, pieces));
      if (exact.empty()) exact = losses;
      const auto count = static_cast<double>(losses.size());
      double sum = 0;
      double above = 0;
      double squares = 0;
      for (size_t i = 0; i < losses.size(); ++i) {
        sum += losses[i];
        above += losses[i] - exact[i];
        squares += std::pow(losses[i] - exact[i], 2);
      }
      fmt::print(
          "{{\"model\": \"{}\", \"weights\": \"{}\", \"kv\": \"{}\", \"step_tokens\": {}, "
          "\"tokens\": {}, \"perplexity\": {:.4f}, \"ratio\": {:.5f}, \"ratio_sd\": {:.5f}, "
          "\"half_mean_square\": {:.5f}}}\n",
          model.name,
          fp8_weights ? "fp8" : "bf16",
          Name(kv_dtype),
          step_tokens,
          losses.size(),
          std::exp(sum / count),
          std::exp(above / count),
          std::sqrt(squares) / count,
          squares / count / 2);
      std::fflush(stdout);
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const int step_tokens = argc > 3 ? std::atoi(argv[2]) : 0;
  if (step_tokens < 1) {
    std::fprintf(stderr, "usage: gpu_quality_bench MODEL TOKENS_A_STEP TEXT_FILE...\n");
    return 2;
  }
  const baton::Status status = baton::Compare(argv[1],
                                              static_cast<size_t>(step_tokens),
                                              std::span(argv + 3, static_cast<size_t>(argc - 3)));
  if (status.ok()) return 0;
  std::fprintf(stderr, "gpu_quality_bench: %s\n", status.ToString().c_str());
  return 1;
}
