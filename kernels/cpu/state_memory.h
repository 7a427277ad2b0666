#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_view.h"

// States of sequences (StateView), whose bytes are in several blocks of the arena.
namespace baton::cpu {

// Copies the numbers of a state from byte `first` on into `to`. `blocks` is the list of its blocks.
void ReadState(const KvView& kv,
               std::span<const int32_t> blocks,
               int64_t first,
               std::span<float> to);
// The reverse.
void WriteState(const KvView& kv,
                std::span<const int32_t> blocks,
                int64_t first,
                std::span<const float> from);

}  // namespace baton::cpu
