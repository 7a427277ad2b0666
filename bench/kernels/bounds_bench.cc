// What this machine can do at most, by which compare.py divides: prints a JSON object with the
// bytes that the threads read from memory and the multiply-adds of the instructions with which the
// GEMMs of an instruction set compute (exact 16-bit dot products), each the best of several rounds.
//   cpu_bounds_bench [--cpu_isa auto] [--threads 2] [--mib 92: the size of what is read]
#include <algorithm>
#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/weight_memory.h"

namespace baton {
namespace {

constexpr int kRounds = 8;

// Reads `bytes` bytes, a multiple of 256. Returns their sum, so that the compiler keeps the reads.
uint64_t Read(const std::byte* from, size_t bytes) {
  constexpr size_t kAhead = 4096;
  uint64_t sums[8] = {};
  for (size_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(from + at + kAhead);
    uint64_t words[8];
    std::memcpy(words, from + at, sizeof(words));
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

// Repetitions of the instructions in one call of Multiply.
constexpr int64_t kRepetitions = 1'000'000;

#if defined(__x86_64__)
// Independent sums, more than the latency of an addition takes. The assembler needs no permission
// of the compiler for an instruction set; main checks that the processor has it.
// clang-format off
#define BATON_TWELVE(OP) \
  OP(0) OP(1) OP(2) OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10) OP(11)
#define BATON_DOT_512(n) "vpdpwssd %%zmm12, %%zmm13, %%zmm" #n "\n"
#define BATON_DOT_256(n) "%{vex%} vpdpwssd %%ymm12, %%ymm13, %%ymm" #n "\n"
#define BATON_MULTIPLY_ADD(n) "vpmaddwd %%ymm12, %%ymm13, %%ymm14\n vpaddd %%ymm14, %%ymm" #n ", %%ymm" #n "\n"
#define BATON_CLOBBERED "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
  "xmm10", "xmm11", "xmm12", "xmm13", "xmm14"
// clang-format on

// Runs the instructions kRepetitions times and returns the multiply-adds.
int64_t Multiply(CpuIsa isa) {
  asm volatile("vpxor %%ymm12, %%ymm12, %%ymm12\n vpxor %%ymm13, %%ymm13, %%ymm13" ::
                   : "xmm12", "xmm13");
  for (int64_t i = 0; i < kRepetitions; ++i) {
    if (isa == CpuIsa::kAvx512) {
      asm volatile(BATON_TWELVE(BATON_DOT_512)::: BATON_CLOBBERED);
    } else if (isa == CpuIsa::kAvxVnni) {
      asm volatile(BATON_TWELVE(BATON_DOT_256)::: BATON_CLOBBERED);
    } else {
      asm volatile(BATON_TWELVE(BATON_MULTIPLY_ADD)::: BATON_CLOBBERED);
    }
  }
  asm volatile("vzeroupper");
  return kRepetitions * 12 * (isa == CpuIsa::kAvx512 ? 32 : 16);
}
#else
int64_t Multiply(CpuIsa) {
  return 0;
}
#endif

using Clock = std::chrono::steady_clock;

// One thread's part of a round.
struct Part {
  Clock::time_point began;
  Clock::time_point ended;
  int64_t work = 0;
};

// Runs body(thread), which returns an amount of work, on all threads at the same time. Returns the
// best sum of the amounts per second.
double Rate(int threads, const std::function<int64_t(int)>& body) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::barrier start(threads);
    std::vector<Part> parts(static_cast<size_t>(threads));
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&, i] {
        Part& part = parts[static_cast<size_t>(i)];
        start.arrive_and_wait();
        part.began = Clock::now();
        part.work = body(i);
        part.ended = Clock::now();
      });
    }
    running.clear();  // joins
    Part all = parts[0];
    for (const Part& part : std::span(parts).subspan(1)) {
      all.began = std::min(all.began, part.began);
      all.ended = std::max(all.ended, part.ended);
      all.work += part.work;
    }
    const std::chrono::duration<double> took = all.ended - all.began;
    best = std::max(best, static_cast<double>(all.work) / took.count());
  }
  return best;
}

struct Arguments {
  std::string_view isa = kAutoIsa;
  int threads = 2;
  int mib = 92;
};

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--cpu_isa") {
      arguments.isa = value;
      continue;
    }
    int* const number = name == "--threads" ? &arguments.threads : &arguments.mib;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *number);
    if ((name != "--threads" && name != "--mib") || error != std::errc() || *number < 1 ||
        *number > 65536) {
      return InvalidArgument("'{} {}' is not an option of cpu_bounds_bench", name, value);
    }
  }
  return arguments;
}

Status Main(int argc, char** argv) {
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  BATON_ASSIGN_OR_RETURN(const CpuIsa isa, ParseCpuIsa(arguments.isa));
  CpuDevice device;
  cpu::WeightMemory weights(device);
  const size_t bytes = static_cast<size_t>(arguments.mib) << 20;
  BATON_ASSIGN_OR_RETURN(const auto memory, weights.Allocate(bytes));
  std::memset(memory.get(), 1, bytes);
  const size_t share = bytes / static_cast<size_t>(arguments.threads) / 256 * 256;
  std::vector<uint64_t> sums(static_cast<size_t>(arguments.threads));
  const double read = Rate(arguments.threads, [&](int thread) {
    const auto i = static_cast<size_t>(thread);
    sums[i] += Read(memory.get() + i * share, share);
    return static_cast<int64_t>(share);
  });
  double dot = 0;
  if (isa != CpuIsa::kPortable) {
    dot = Rate(arguments.threads, [&](int) { return Multiply(isa); });
  }
  const std::string_view name = Name(isa);
  std::printf("{\"cpu_isa\":\"%.*s\",\"threads\":%d,\"read_gb_s\":%.1f,\"dot_gmac_s\":%.1f}\n",
              static_cast<int>(name.size()),
              name.data(),
              arguments.threads,
              read / 1e9,
              dot / 1e9);
  return OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const baton::Status status = baton::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cpu_bounds_bench: %s\n", status.ToString().c_str());
  return 1;
}
