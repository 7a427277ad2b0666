#include "common/collective/mpi/mpi_collective.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr int kFirstTag = 8;  // smaller tags are the runtime's
constexpr int kTagsPerId = 8;

}  // namespace

void MpiCollective::AddSend(int to) {
  messages_.push_back({.peer = options_.ranks[to], .is_send = true, .bytes = buffers_->out});
}

void MpiCollective::AddReceive(int from, std::span<std::byte> bytes) {
  messages_.push_back({.peer = options_.ranks[from], .is_send = false, .bytes = bytes});
}

MpiWait MpiCollective::WaitOf(Kind kind) const {
  return {.tag = kFirstTag + options_.id * kTagsPerId + static_cast<int>(kind),
          .limit = options_.limit,
          .busy_poll = options_.busy_poll};
}

Status MpiCollective::Run(Kind kind) {
  Status status = runtime_.Exchange(messages_, buffers_, WaitOf(kind));
  messages_.clear();
  return status;
}

Status MpiCollective::AllGather(const CollectiveRows& rows, std::span<const size_t> ends) {
  CheckRows(rows, ends, size());
  std::vector<PackedRows> parts;
  size_t total = 0;
  for (int member = 0; member < size(); ++member) {
    parts.emplace_back(rows, ends, member);
    total += parts.back().size();
  }
  ReserveOut(parts[rank()].size());
  parts[rank()].CopyOut(0, buffers_->out);
  ReserveIn(total);
  size_t offset = 0;
  for (int member = 0; member < size(); ++member) {
    if (member != rank()) {
      AddSend(member);
      AddReceive(member, in(offset, parts[member].size()));
    }
    offset += parts[member].size();
  }
  BATON_RETURN_IF_ERROR(Run(Kind::kAllGather));
  offset = 0;
  for (int member = 0; member < size(); ++member) {
    if (member != rank()) parts[member].CopyIn(0, in(offset, parts[member].size()));
    offset += parts[member].size();
  }
  return OkStatus();
}

Status MpiCollective::GatherToFirst(const CollectiveRows& rows, std::span<const size_t> ends) {
  CheckRows(rows, ends, size());
  if (rank() != 0) {
    const PackedRows own(rows, ends, rank());
    ReserveOut(own.size());
    own.CopyOut(0, buffers_->out);
    AddSend(0);
    return Run(Kind::kGather);
  }
  ReserveIn(ends.back() * static_cast<size_t>(rows.count));
  size_t offset = 0;
  for (int member = 1; member < size(); ++member) {
    const size_t bytes = PackedRows(rows, ends, member).size();
    AddReceive(member, in(offset, bytes));
    offset += bytes;
  }
  BATON_RETURN_IF_ERROR(Run(Kind::kGather));
  offset = 0;
  for (int member = 1; member < size(); ++member) {
    const PackedRows part(rows, ends, member);
    part.CopyIn(0, in(offset, part.size()));
    offset += part.size();
  }
  return OkStatus();
}

Status MpiCollective::AllReduce(std::span<float> values) {
  const size_t bytes = values.size_bytes();
  ReserveOut(bytes);
  std::copy_n(std::as_bytes(values).begin(), bytes, buffers_->out.begin());
  ReserveIn(bytes * size());
  for (int member = 0; member < size(); ++member) {
    if (member == rank()) continue;
    AddSend(member);
    AddReceive(member, in(member * bytes, bytes));
  }
  BATON_RETURN_IF_ERROR(Run(Kind::kAllReduce));
  for (int member = 0; member < size(); ++member) {
    const auto part = member == rank() ? std::span(buffers_->out) : in(member * bytes, bytes);
    const auto* const from = reinterpret_cast<const float*>(part.data());
    if (member == 0) {
      std::copy_n(from, values.size(), values.begin());
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) values[i] += from[i];
  }
  return OkStatus();
}

Status MpiCollective::BroadcastFromFirst(std::span<std::byte> bytes) {
  if (rank() != 0) {
    ReserveIn(bytes.size());
    AddReceive(0, buffers_->in);
    BATON_RETURN_IF_ERROR(Run(Kind::kBroadcast));
    std::copy(buffers_->in.begin(), buffers_->in.end(), bytes.begin());
    return OkStatus();
  }
  buffers_->out.assign(bytes.begin(), bytes.end());
  for (int member = 1; member < size(); ++member) AddSend(member);
  return Run(Kind::kBroadcast);
}

Status MpiCollective::Send(int to, std::span<const std::byte> bytes) {
  BATON_CHECK(to >= 0 && to < size() && to != rank(), "rank {} sends to {}", rank(), to);
  return runtime_.SendAhead(options_.ranks[to], bytes, options_.ahead_bytes, WaitOf(Kind::kSend));
}

Status MpiCollective::Receive(int from, std::span<std::byte> bytes) {
  BATON_CHECK(
      from >= 0 && from < size() && from != rank(), "rank {} receives from {}", rank(), from);
  ReserveIn(bytes.size());
  AddReceive(from, buffers_->in);
  BATON_RETURN_IF_ERROR(Run(Kind::kSend));
  std::copy(buffers_->in.begin(), buffers_->in.end(), bytes.begin());
  return OkStatus();
}

}  // namespace baton
