#include "common/collective/shm_collective.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/futex.h"
#include "common/base/hash.h"
#include "common/collective/packed_rows.h"

namespace baton {
namespace {

// A call word holds the kind in its low bits and a hash of the sizes above.
constexpr uint32_t kKindBits = 3;
// Polls between two looks at the clock and the abort word.
constexpr int kPolls = 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Words count rounds and chunks and may wrap around.
bool Reached(const uint32_t& word, uint32_t value) {
  return static_cast<int32_t>(LoadWord(word) - value) >= 0;
}

size_t Chunks(size_t bytes, size_t slot) {
  return (bytes + slot - 1) / slot;
}

}  // namespace

Duration BusyPollOf(const CollectiveOptions& options, int ranks) {
  if (options.busy_poll.has_value()) return *options.busy_poll;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const bool known = ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
  return known && CPU_COUNT(&cpus) >= ranks ? std::chrono::microseconds(50) : Duration(0);
}

StatusOr<std::unique_ptr<ShmCollective>> ShmCollective::Create(GroupMemory& memory,
                                                               size_t index,
                                                               int rank,
                                                               const CollectiveOptions& options) {
  const GroupLayout& layout = memory.layout();
  if (index >= layout.collectives.size()) {
    return InvalidArgument(
        "collective {} does not exist; the group has {}", index, layout.collectives.size());
  }
  const std::vector<int>& ranks = layout.collectives[index].ranks;
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  if (place == ranks.end()) {
    return InvalidArgument(
        "rank {} is not in collective {}, whose ranks are {}", rank, index, fmt::join(ranks, ", "));
  }
  const int me = static_cast<int>(place - ranks.begin());
  uint32_t& opened = memory.area(index).doorbell(me).opened;
  if (std::atomic_ref(opened).exchange(1) != 0) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "another process or object is rank {} of collective {} already",
                      rank,
                      index);
  }
  return std::unique_ptr<ShmCollective>(new ShmCollective(memory, index, me, options));
}

ShmCollective::ShmCollective(GroupMemory& memory,
                             size_t index,
                             int me,
                             const CollectiveOptions& options)
    : memory_(memory),
      index_(index),
      area_(memory.area(index)),
      me_(me),
      limit_(options.limit),
      busy_poll_(BusyPollOf(options, memory.layout().ranks)),
      entered_(area_.members()),
      sent_(area_.members()),
      received_(area_.members()) {
  for (int i = 0; i < size(); ++i) {
    everyone_.push_back(i);
    if (i != 0) others_.push_back((me_ + i) % size());
  }
}

uint32_t ShmCollective::CallWord(Kind kind, std::span<const size_t> sizes) {
  const auto hash = static_cast<uint32_t>(Xxh3(std::as_bytes(sizes)));
  return hash << kKindBits | static_cast<uint32_t>(kind);
}

std::string ShmCollective::CallName(uint32_t call) {
  constexpr const char* kNames[] = {
      "AllGather", "GatherToFirst", "AllReduce", "BroadcastFromFirst", "Send"};
  const uint32_t kind = call & ((1U << kKindBits) - 1);
  return kind < std::size(kNames) ? kNames[kind] : "an unknown call";
}

int ShmCollective::RankOf(int member) const {
  return memory_.layout().collectives[index_].ranks[member];
}

Status ShmCollective::AllGather(const CollectiveRows& rows, std::span<const size_t> ends) {
  return Gather(Kind::kAllGather, rows, ends, others_);
}

Status ShmCollective::GatherToFirst(const CollectiveRows& rows, std::span<const size_t> ends) {
  return Gather(Kind::kGather, rows, ends, me_ == 0 ? std::span(others_) : std::span<const int>());
}

Status ShmCollective::Gather(Kind kind,
                             const CollectiveRows& rows,
                             std::span<const size_t> ends,
                             std::span<const int> sources) {
  CheckRows(rows, ends, size());
  size_t widest = 0;
  for (int member = 0; member < size(); ++member) {
    widest = std::max(widest, PackedRows(rows, ends, member).size());
  }
  const size_t slot = area_.slot_bytes();
  const auto part = [slot](const PackedRows& packed, size_t round, std::span<std::byte> bytes) {
    const size_t begin = std::min(packed.size(), round * slot);
    return bytes.first(std::min(packed.size() - begin, slot));
  };
  const PackedRows own(rows, ends, me_);
  return RunRounds(
      CallWord(kind, ends) ^ (static_cast<uint32_t>(rows.count) << kKindBits),
      Chunks(widest, slot),
      sources,
      [&](size_t round, std::span<std::byte> bytes) {
        // Nobody reads what the first member would write for itself.
        if (kind == Kind::kGather && me_ == 0) return;
        const auto to = part(own, round, bytes);
        if (!to.empty()) own.CopyOut(round * slot, to);
      },
      [&](size_t round, int member, std::span<std::byte> bytes) {
        const PackedRows packed(rows, ends, member);
        const auto from = part(packed, round, bytes);
        if (!from.empty()) packed.CopyIn(round * slot, from);
      });
}

Status ShmCollective::AllReduce(std::span<float> values) {
  const size_t slot = area_.slot_bytes() / sizeof(float);
  const auto part = [&](size_t round) {
    const size_t begin = round * slot;
    return values.subspan(begin, std::min(values.size() - begin, slot));
  };
  const size_t count = values.size();
  return RunRounds(
      CallWord(Kind::kAllReduce, {&count, 1}),
      Chunks(count, slot),
      everyone_,
      [&](size_t round, std::span<std::byte> bytes) {
        const auto from = part(round);
        std::memcpy(bytes.data(), from.data(), from.size_bytes());
      },
      [&](size_t round, int member, std::span<std::byte> bytes) {
        const auto sums = part(round);
        const auto* const from = reinterpret_cast<const float*>(bytes.data());
        if (member == 0) {
          std::copy_n(from, sums.size(), sums.begin());
          return;
        }
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += from[i];
      });
}

Status ShmCollective::BroadcastFromFirst(std::span<std::byte> bytes) {
  const size_t slot = area_.slot_bytes();
  const auto part = [&](size_t round) {
    return bytes.subspan(round * slot, std::min(bytes.size() - round * slot, slot));
  };
  constexpr int kFirst = 0;
  const size_t size_of_bytes = bytes.size();
  return RunRounds(
      CallWord(Kind::kBroadcast, {&size_of_bytes, 1}),
      Chunks(bytes.size(), slot),
      me_ == 0 ? std::span<const int>() : std::span(&kFirst, 1),
      [&](size_t round, std::span<std::byte> to) {
        if (me_ == 0) std::memcpy(to.data(), part(round).data(), part(round).size());
      },
      [&](size_t round, int /*member*/, std::span<std::byte> from) {
        std::memcpy(part(round).data(), from.data(), part(round).size());
      });
}

template <class Fill, class Drain>
Status ShmCollective::RunRounds(uint32_t call,
                                size_t rounds,
                                std::span<const int> sources,
                                const Fill& fill,
                                const Drain& drain) {
  if (memory_.aborted()) return memory_.abort_status();
  if (size() == 1) return OkStatus();
  for (size_t round = 0; round < rounds; ++round, ++round_) {
    BATON_RETURN_IF_ERROR(EnterRound());
    const Slot own = area_.slot(me_, round_);
    fill(round, own.bytes);
    Publish(own, round_ + 1, call);
    for (const int member : others_) RingIfWaiting(member);
    for (const int member : sources) {
      const Slot slot = area_.slot(member, round_);
      BATON_RETURN_IF_ERROR(Wait(member, slot.head.turn, round_ + 1));
      BATON_RETURN_IF_ERROR(CheckCall(member, slot.head.call, call));
      entered_[member] = round_ + 1;
      drain(round, member, slot.bytes);
    }
  }
  return OkStatus();
}

Status ShmCollective::EnterRound() {
  for (const int member : others_) {
    if (entered_[member] == round_) continue;
    BATON_RETURN_IF_ERROR(Wait(member, area_.slot(member, round_ - 1).head.turn, round_));
    entered_[member] = round_;
  }
  return OkStatus();
}

void ShmCollective::Publish(Slot slot, uint32_t turn, uint32_t call) {
  slot.head.call = call;
  StoreWord(slot.head.turn, turn);
}

void ShmCollective::RingIfWaiting(int member) {
  if (LoadWord(area_.doorbell(member).waiting_for) == static_cast<uint32_t>(me_) + 1) {
    area_.Ring(member);
  }
}

Status ShmCollective::CheckCall(int source, uint32_t found, uint32_t expected) {
  if (found == expected) return OkStatus();
  const std::string message =
      fmt::format("rank {} calls {} while rank {} calls {}; the kinds and the sizes must be equal",
                  RankOf(source),
                  CallName(found),
                  RankOf(me_),
                  CallName(expected));
  memory_.Abort(RankOf(source), message);
  return memory_.abort_status();
}

Status ShmCollective::Send(int to, std::span<const std::byte> bytes) {
  BATON_CHECK(to >= 0 && to < size() && to != me_, "rank {} sends to {}", me_, to);
  if (memory_.aborted()) return memory_.abort_status();
  const size_t total = bytes.size();
  const uint32_t call = CallWord(Kind::kSend, {&total, 1});
  uint32_t& chunk = sent_[to];
  for (; !bytes.empty(); ++chunk) {
    BATON_RETURN_IF_ERROR(Wait(to, area_.received(me_, to), chunk - 1));
    const Slot slot = area_.pair_slot(me_, to, chunk);
    const auto part = bytes.first(std::min(bytes.size(), slot.bytes.size()));
    std::memcpy(slot.bytes.data(), part.data(), part.size());
    Publish(slot, chunk + 1, call);
    RingIfWaiting(to);
    bytes = bytes.subspan(part.size());
  }
  return OkStatus();
}

Status ShmCollective::Receive(int from, std::span<std::byte> bytes) {
  BATON_CHECK(from >= 0 && from < size() && from != me_, "rank {} receives from {}", me_, from);
  if (memory_.aborted()) return memory_.abort_status();
  const size_t total = bytes.size();
  const uint32_t call = CallWord(Kind::kSend, {&total, 1});
  uint32_t& chunk = received_[from];
  for (; !bytes.empty(); ++chunk) {
    const Slot slot = area_.pair_slot(from, me_, chunk);
    BATON_RETURN_IF_ERROR(Wait(from, slot.head.turn, chunk + 1));
    BATON_RETURN_IF_ERROR(CheckCall(from, slot.head.call, call));
    const auto part = bytes.first(std::min(bytes.size(), slot.bytes.size()));
    std::memcpy(part.data(), slot.bytes.data(), part.size());
    StoreWord(area_.received(from, me_), chunk + 1);
    RingIfWaiting(from);
    bytes = bytes.subspan(part.size());
  }
  return OkStatus();
}

Status ShmCollective::Wait(int source, uint32_t& word, uint32_t value) {
  if (Reached(word, value)) return OkStatus();
  return WaitLonger(source, word, value);
}

Status ShmCollective::WaitLonger(int source, uint32_t& word, uint32_t value) {
  const SteadyClock clock;
  const Time start = clock.Now();
  while (clock.Now() - start < busy_poll_) {
    for (int i = 0; i < kPolls; ++i) {
      if (Reached(word, value)) return OkStatus();
      Pause();
    }
    if (memory_.aborted()) return memory_.abort_status();
  }
  Doorbell& bell = area_.doorbell(me_);
  while (true) {
    // The order of these accesses loses no wake-up: `source` stores the word before it looks
    // whether this member waits, and Abort stores its word before it increments the event.
    const uint32_t event = LoadWord(bell.event);
    StoreWord(bell.waiting_for, static_cast<uint32_t>(source) + 1);
    const bool reached = Reached(word, value);
    const Duration waited = clock.Now() - start;
    if (reached || memory_.aborted() || waited >= limit_) {
      StoreWord(bell.waiting_for, 0);
      if (reached) return OkStatus();
      return memory_.aborted() ? memory_.abort_status() : TooLate(source);
    }
    FutexWait(bell.event, event, limit_ - waited);
  }
}

Status ShmCollective::TooLate(int source) {
  const int late = memory_.Culprit(RankOf(source), RankOf(me_));
  const std::string message =
      fmt::format("rank {} did not come within {} ms", late, ToMillis(limit_));
  memory_.Abort(late, message);
  return MakeStatus(StatusCode::kDeadlineExceeded, "{}", message);
}

}  // namespace baton
