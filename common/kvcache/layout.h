#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/kvcache/kv_window.h"
#include "kernels/kv_view.h"

// How the KV of a whole model is stored. A block holds block_tokens tokens of the layers of one
// cache group, in the order [layer][plane][head] and inside a head [token][dim], without gaps. All
// counts are of the whole model; KvShard is the part of one rank.
namespace baton {

inline constexpr int32_t kMaxLayers = 1024;  // of a model
inline constexpr int32_t kMaxCacheGroups = 64;
inline constexpr int32_t kMaxPlanes = 8;          // of a cache group
inline constexpr int32_t kMaxPlaneDim = 4096;     // KvPlane::dim of a block of tokens
inline constexpr int32_t kMaxStateDim = 1 << 24;  // and of a state

enum class KvOrder : uint8_t {
  kTokenMajor,  // [token][dim]
  kDimMajor,    // [dim][token]
};

// One tensor that a block holds for each of its layers: K, V, a latent of MLA, scales of FP8; or a
// part of a state.
struct KvPlane {
  std::string name;
  int32_t heads = 0;
  int32_t dim = 0;  // elements of one head and token; of one head in a state
  DType dtype = DType::kF32;
  KvOrder order = KvOrder::kTokenMajor;
  // Tensor-parallel ranks hold disjoint heads. False: every rank that holds a layer holds all heads
  // of the plane (a replicated plane).
  bool sharded = true;

  bool operator==(const KvPlane&) const = default;

  // Bytes of one head in one layer of a block of `tokens` tokens; 1: of a state.
  size_t head_bytes(int32_t tokens) const {
    return static_cast<size_t>(tokens) * dim * ShapeOf(dtype).bytes;
  }
};

// Layers with the same planes and one block table for each sequence. Blocks of all cache groups
// come from one arena and have one size: each block belongs to one cache group while it is in use.
struct KvCacheGroup {
  std::vector<int32_t> layers;  // ascending
  // A token's attention reads itself and the tokens before it, sliding_window tokens together.
  // 0: all tokens.
  int32_t sliding_window = 0;
  // In its place: a token's attention reads the tokens of its chunk of this many up to itself
  // (KvWindow). 0: no chunks.
  int32_t attention_chunk = 0;
  std::vector<KvPlane> planes;
  // The layers keep a state of fixed size for each sequence, which every token changes, in place of
  // KV of every token (recurrent layers). A state takes StateBlocks arena blocks. That after the
  // last token of a block of tokens stands for this block in the prefix cache (a checkpoint).
  bool state = false;

  // Which tokens must be in the cache for the next one.
  KvWindow window() const {
    if (state) return kStateWindow;
    return attention_chunk > 0 ? KvWindow::OfChunks(attention_chunk) : KvWindow(sliding_window);
  }

  bool operator==(const KvCacheGroup&) const = default;
};

struct KvLayout {
  int32_t block_tokens = 16;
  std::vector<KvCacheGroup> groups;
  // A prompt's KV is sent to another worker layer group by layer group, so that the KV of the first
  // layers is transferred while later layers are computed. The first layer after each layer group,
  // ascending; the last one is layers().
  std::vector<int32_t> layer_group_ends;

  bool operator==(const KvLayout&) const = default;

  int32_t layers() const;
  int32_t layer_groups() const { return static_cast<int32_t>(layer_group_ends.size()); }
  // The heads of the sharded planes, which is the same number for all of them; 0 if every plane is
  // replicated.
  int32_t sharded_heads() const;
  // KvCacheGroup::window of each group.
  std::vector<KvWindow> windows() const;
  // Whether the last group is one of states.
  bool has_state() const { return !groups.empty() && groups.back().state; }
  // The number of groups of blocks of tokens, which come first.
  int32_t block_groups() const {
    return static_cast<int32_t>(groups.size()) - (has_state() ? 1 : 0);
  }
  // For KvPlane::head_bytes of the planes of `group`.
  int32_t plane_tokens(const KvCacheGroup& group) const { return group.state ? 1 : block_tokens; }
  // The largest window of cache groups beside groups that read all tokens; that of all tokens if
  // all groups or none have one.
  KvWindow window_beside_all() const;
  bool has_replicated_planes() const;
  // Equal layouts, and only these, print equally: "30 layers of k 3 × 64 f16, v 3 × 64 f16; 16
  // tokens a block; sent after layers 8, 16, 24, 30".
  std::string ToString() const;
  // InvalidArgument naming the field that is out of range, and its bounds.
  Status Validate() const;
};

// The layers of a model that have a state, ascending, and its planes.
struct StateLayers {
  std::vector<int32_t> layers;
  std::vector<KvPlane> planes;
};

// The layout of models that have K and V, or a latent, of the same shape in every layer without a
// state.
struct DenseKv {
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;
  DType dtype = DType::kF32;
  bool k_dim_major = false;
  std::vector<KvWindow> windows = {};  // by layer; empty: all layers read all tokens
  // Not 0: a layer has one plane of this many numbers for each token, which stands for K and V of
  // all heads (multi-head latent attention). Then kv_heads, head_dim and k_dim_major have no
  // effect.
  int32_t latent_width = 0;
  // Beside a latent: the numbers of an index key of each token (IndexShape), a plane of its own.
  // 0: none.
  int32_t index_width = 0;
  StateLayers state = {};
};

// Cache groups with the planes "k" and "v", or with the replicated planes "latent" and "index",
// each of layers with one window, then one of the layers with a state. Where all layers have a
// state, the first group has no layers: its blocks hold nothing, and stand for tokens. Layers of
// one window are in several cache groups where a block that holds all of them would be larger than
// another window's. Layer groups are those of ChooseLayerGroups.
KvLayout DenseLayout(const DenseKv& kv);

// KvLayout::layer_group_ends for a layout that has none yet: 1 to 4 layer groups, as many as leave
// each layer group about 64 KiB of a token block, because small pieces transfer slowly. The last
// layer group is the smallest, because the hand-off waits for its transfer.
std::vector<int32_t> ChooseLayerGroups(const KvLayout& layout);

// The slice of every block that one rank holds: layers, heads of the sharded planes (0+0 if there
// are none), and all heads of the replicated planes.
struct KvShard {
  int32_t first_layer = 0;
  int32_t layer_count = 0;
  int32_t first_head = 0;
  int32_t head_count = 0;

  bool operator==(const KvShard&) const = default;
};

inline KvShard WholeModel(const KvLayout& layout) {
  return {0, layout.layers(), 0, layout.sharded_heads()};
}

// How many layers of `group` lie before layer `layer` of the model.
int32_t LayersBefore(const KvCacheGroup& group, int32_t layer);

// The bytes of a block of tokens of `group` in `shard`, or of a state.
size_t GroupBytes(const KvLayout& layout, const KvCacheGroup& group, const KvShard& shard);

// The bytes of a block of an arena of `shard`: those of the largest cache group, so that any block
// can serve any cache group. A state takes several blocks. Where the shard has no other layers, its
// blocks divide the state as those of the whole model do.
size_t ShardBlockBytes(const KvLayout& layout, const KvShard& shard);

// The bytes of a state in the arena of `shard`; 0: its layers have none.
size_t ShardStateBytes(const KvLayout& layout, const KvShard& shard);
// StateView::block_bytes of `shard`.
size_t StateBlockBytes(const KvLayout& layout, const KvShard& shard);
// The arena blocks of a state for a worker of these shards: as many as the shard with the largest
// state needs, because a block has one number on all ranks. 0: the layout has no states.
int32_t StateBlocks(const KvLayout& layout, std::span<const KvShard> shards);
// At least StateBlocks, however the model is divided among ranks.
int32_t MaxStateBlocks(const KvLayout& layout);

// InvalidArgument when `shard` is empty or reaches outside `layout`.
Status ValidateShard(const KvLayout& layout, const KvShard& shard);

// Where each layer of `shard` is, by its number in the shard.
std::vector<KvLayerPlace> PlacesOf(const KvLayout& layout, const KvShard& shard);

// The view that kernels take of `blocks` blocks of one shard, stored at `base`. The layout must be
// a DenseLayout. `places` are PlacesOf; the view refers to them.
KvView MakeView(const KvLayout& layout,
                const KvShard& shard,
                std::span<const KvLayerPlace> places,
                std::byte* base,
                int32_t blocks);

}  // namespace baton
