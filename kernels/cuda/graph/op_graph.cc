#include "kernels/cuda/graph/op_graph.h"

#include <algorithm>
#include <utility>

namespace baton::cuda {

OpGraph::OpGraph(std::vector<StepOp> ops) {
  nodes_.reserve(ops.size());
  for (StepOp& op : ops) nodes_.push_back({.op = std::move(op)});
  FindValues();
}

void OpGraph::FindValues() {
  read_places_.clear();
  write_places_.clear();
  reads_.clear();
  read_values_.clear();
  values_.clear();
  live_.clear();
  for (size_t at = 0; at < nodes_.size(); ++at) {
    Node& node = nodes_[at];
    const size_t first_write = write_places_.size();
    if (!node.removed) AppendPlaces(node.op, read_places_, write_places_);
    node.reads_end = read_places_.size();
    node.writes_end = write_places_.size();
    while (reads_.size() < read_places_.size()) FindRead(read_places_[reads_.size()]);
    for (const Place& place : std::span(write_places_).subspan(first_write)) {
      std::erase_if(live_, [&](const Live& value) { return Overlap(value.place, place); });
      live_.push_back({place, static_cast<ValueId>(values_.size())});
      values_.push_back({.producer = at, .place = place});
    }
  }
  changed_ = false;
}

void OpGraph::FindRead(const Place& place) {
  const size_t first = read_values_.size();
  // The live values are in the order in which they were written.
  for (const Live& value : live_) {
    if (!Overlap(value.place, place)) continue;
    ++values_[static_cast<size_t>(value.id)].readers;
    read_values_.push_back(value.id);
  }
  reads_.push_back({first, read_values_.size() - first});
}

std::span<const Place> OpGraph::reads(size_t at) const {
  const size_t begin = at == 0 ? 0 : nodes_[at - 1].reads_end;
  return std::span(read_places_).subspan(begin, nodes_[at].reads_end - begin);
}

std::span<const Place> OpGraph::writes(size_t at) const {
  const size_t begin = at == 0 ? 0 : nodes_[at - 1].writes_end;
  return std::span(write_places_).subspan(begin, nodes_[at].writes_end - begin);
}

void OpGraph::Refresh() {
  if (changed_) FindValues();
}

std::span<const OpGraph::ValueId> OpGraph::ValuesOf(size_t reader, const Place& operand) const {
  const std::span<const Place> places = reads(reader);
  const auto found = std::ranges::find(places, operand);
  if (found == places.end()) return {};
  const Read& read = reads_[static_cast<size_t>(&*found - read_places_.data())];
  return std::span(read_values_).subspan(read.first, read.values);
}

const OpGraph::Value* OpGraph::OnlyValue(size_t reader, const Place& operand) const {
  const std::span<const ValueId> values = ValuesOf(reader, operand);
  if (values.size() != 1) return nullptr;
  const Value& value = values_[static_cast<size_t>(values.front())];
  return nodes_[value.producer].removed ? nullptr : &value;
}

std::optional<size_t> OpGraph::Producer(size_t reader, const Place& operand) const {
  const Value* const value = OnlyValue(reader, operand);
  if (value == nullptr || value->place != operand) return std::nullopt;
  return value->producer;
}

std::optional<size_t> OpGraph::SoleProducer(size_t reader, const Place& operand) const {
  const Value* const value = OnlyValue(reader, operand);
  if (value == nullptr || value->place != operand || value->readers != 1) return std::nullopt;
  return value->producer;
}

std::optional<size_t> OpGraph::LastWriter(size_t reader, const Place& operand) const {
  const Value* const value = OnlyValue(reader, operand);
  if (value == nullptr) return std::nullopt;
  return value->producer;
}

std::vector<size_t> OpGraph::Producers(size_t reader, const Place& operand) const {
  std::vector<size_t> producers;
  for (const ValueId id : ValuesOf(reader, operand)) {
    producers.push_back(values_[static_cast<size_t>(id)].producer);
  }
  return producers;
}

bool OpGraph::CanMove(size_t from, size_t to) const {
  const auto overlaps = [](std::span<const Place> some, std::span<const Place> others) {
    return std::ranges::any_of(some, [&](const Place& one) {
      return std::ranges::any_of(others, [&](const Place& other) { return Overlap(one, other); });
    });
  };
  for (size_t at = std::min(from, to) + 1; at < std::max(from, to); ++at) {
    const Node& node = nodes_[at];
    if (node.removed) continue;
    if (std::holds_alternative<ExchangeOp>(node.op) || std::holds_alternative<NotifyOp>(node.op) ||
        overlaps(writes(at), reads(from)) || overlaps(writes(at), writes(from)) ||
        overlaps(reads(at), writes(from))) {
      return false;
    }
  }
  return true;
}

void OpGraph::Replace(size_t at, StepOp op) {
  nodes_[at].op = std::move(op);
  changed_ = true;
}

void OpGraph::Remove(size_t at) {
  nodes_[at].removed = true;
  changed_ = true;
}

std::vector<StepOp> OpGraph::Take() {
  std::vector<StepOp> ops;
  ops.reserve(nodes_.size());
  for (Node& node : nodes_) {
    if (!node.removed) ops.push_back(std::move(node.op));
  }
  nodes_.clear();
  return ops;
}

}  // namespace baton::cuda
