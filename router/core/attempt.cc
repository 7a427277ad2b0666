#include "router/core/attempt.h"

#include <type_traits>

namespace baton::router {
namespace {

// Changes the state From into the state To, which owns the same data.
template <class From, class To, class State>
void Move(State& state) {
  if (const From* from = std::get_if<From>(&state)) state = To{*from};
}

}  // namespace

Attempt::Attempt(
    Epoch epoch, SampleRange samples, size_t resumed, const Assignment& where, Time now)
    : epoch_(epoch), samples_(samples), resumed_(resumed) {
  if (where.prefill == kNoWorker) {
    prefill_ = Alone{};
    decode_ = Decoding{{where.decode, epoch, now}};
  } else {
    prefill_ = Computing{{where.prefill}};
    decode_ = AwaitingKv{{where.decode, epoch, now}};
  }
}

// ---- the table of transitions: one line for each pair of states, by event

void Attempt::OnComputed() {
  Move<Computing, Computed>(prefill_);
  Move<Sent, Done>(prefill_);
}

void Attempt::OnSent() {
  Move<Computing, Sent>(prefill_);
  Move<Computed, Done>(prefill_);
}

void Attempt::OnPrefillGone() {
  Move<Computing, Done>(prefill_);
  Move<Computed, Done>(prefill_);
  Move<Sent, Done>(prefill_);
}

void Attempt::OnNothingToSend() {
  OnSent();
  OnKvArrived();
  if (DecodeIs<Parked>()) decode_ = Unneeded{};
}

void Attempt::OnKvArrived() {
  Move<AwaitingKv, Decoding>(decode_);
  Move<EndedFirst, Ended>(decode_);
}

void Attempt::OnDecodeEnded() {
  Move<AwaitingKv, EndedFirst>(decode_);
  Move<Decoding, Ended>(decode_);
}

void Attempt::OnRefused(BootId boot, Time now) {
  if (!DecodeIs<AwaitingKv, EndedFirst>()) return;
  decode_ = Parked{now};
  refused_by_.push_back(boot);
}

void Attempt::OnPostponed(Time until) {
  if (DecodeIs<Parked>()) decode_ = Parked{until};
}

void Attempt::OnRedirected(const DecodePart& to) {
  if (DecodeIs<Parked>()) decode_ = AwaitingKv{to};
}

// ---- state

WorkerSlot Attempt::prefill() const {
  return std::visit(
      [](const auto& state) {
        if constexpr (std::is_base_of_v<PrefillPart, std::decay_t<decltype(state)>>) {
          return state.worker;
        } else {
          return kNoWorker;
        }
      },
      prefill_);
}

const Attempt::DecodePart* Attempt::decode() const {
  return std::visit(
      [](const auto& state) -> const DecodePart* {
        if constexpr (std::is_base_of_v<DecodePart, std::decay_t<decltype(state)>>) {
          return &state;
        } else {
          return nullptr;
        }
      },
      decode_);
}

WorkerSlot Attempt::decode_worker() const {
  const DecodePart* part = decode();
  return part == nullptr ? kNoWorker : part->worker;
}

bool Attempt::Has(WorkerSlot worker, Epoch epoch) const {
  if (worker == prefill() && epoch == epoch_) return true;
  const DecodePart* part = decode();
  return part != nullptr && worker == part->worker && epoch == part->epoch;
}

bool Attempt::committed() const {
  return DecodeIs<Decoding, Ended, Unneeded>();
}

Time Attempt::redirect_at() const {
  const auto* parked = std::get_if<Parked>(&decode_);
  return parked == nullptr ? kNever : parked->until;
}

bool Attempt::tokens_complete() const {
  return PrefillIs<Alone, Computed, Done>() && DecodeIs<EndedFirst, Ended, Unneeded>();
}

bool Attempt::accounted() const {
  return PrefillIs<Alone, Done>() && DecodeIs<EndedFirst, Ended, Unneeded>();
}

bool Attempt::prefill_open() const {
  return PrefillIs<Computing, Sent>() || (PrefillIs<Computed, Done>() && !committed());
}

bool Attempt::decode_open() const {
  return DecodeIs<AwaitingKv, Decoding>();
}

}  // namespace baton::router
