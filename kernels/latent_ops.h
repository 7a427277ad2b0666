#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/step_input.h"
#include "kernels/tensor.h"

namespace baton {

// The sizes of multi-head latent attention (arXiv:2405.04434) on one rank. A token's KV in a layer
// is one plane on every rank: its latent, after a norm, and behind it the rotated part of the keys,
// which all heads share. The whole is the key of one KV head, its first `rank` numbers the value.
struct LatentShape {
  int32_t heads = 0;      // query heads
  int32_t rank = 0;       // numbers of the latent; 0: no latent attention
  int32_t nope_dim = 0;   // numbers of a query head that are not rotated
  int32_t rope_dim = 0;   // numbers of a query head that are rotated, behind the others
  int32_t value_dim = 0;  // numbers of an output head

  int32_t query_dim() const { return nope_dim + rope_dim; }
  int32_t width() const { return rank + rope_dim; }

  bool operator==(const LatentShape&) const = default;
};

// The rotary embedding of query heads and of the shared part of the keys.
struct LatentRope {
  // [rope_dim / 2], scaling already applied; null: nothing is rotated.
  const Vector* inverse_frequencies = nullptr;
  float magnitude = 1.0f;  // as RopeArgs::magnitude
  RopePairing pairing = RopePairing::kAdjacent;
};

struct LatentKvArgs {
  LatentShape shape;
  LatentRope rope;
  const Vector* norm = nullptr;  // [rank]
  float norm_epsilon = 0;
  int32_t layer = 0;
};

// The weights of a head, one matrix for each of LatentShape::heads.
using HeadMatrices = std::span<const std::unique_ptr<Matrix>>;

struct LatentQueryArgs {
  LatentShape shape;
  LatentRope rope;
  HeadMatrices keys = {};  // [rank][nope_dim]: the transposed weights of the head's keys
};

struct LatentAttentionArgs {
  LatentShape shape;
  int32_t layer = 0;
  float scale = 0;
  bool only_logit_rows = false;  // as AttentionArgs::only_logit_rows
};

// DeepSeek Sparse Attention (arXiv:2512.02556): a row attends to the tokens that an index of its
// own ranks highest. The index key of a token is one vector, the same on all ranks.
struct IndexShape {
  int32_t heads = 0;     // of index queries; 0: rows attend to all tokens
  int32_t dim = 0;       // numbers of an index key, and of a head of an index query
  int32_t rope_dim = 0;  // the first of them, which are rotated
  int32_t tokens = 0;    // the most tokens that a row attends to

  bool operator==(const IndexShape&) const = default;
};

struct IndexKeyArgs {
  IndexShape shape;
  LatentRope rope;
  int32_t layer = 0;
};

struct SelectArgs {
  IndexShape shape;
  LatentRope rope;
  int32_t layer = 0;
  bool only_logit_rows = false;  // as AttentionArgs::only_logit_rows
};

struct LatentValueArgs {
  LatentShape shape;
  HeadMatrices values = {};  // [value_dim][rank]
};

// The ops of multi-head latent attention in the absorbed form: a key of a head is a product of its
// weights and the latent, so the query is multiplied by these weights once, instead of the latent
// of each token. Ops::latent_ops of the backend (OpVariant::kLatentAttention); called as other ops
// are, under the same conditions. A row's result never depends on other rows.
class LatentOps {
 public:
  virtual ~LatentOps() = default;

  // `kv` is [rows][latent | part of the keys]. Normalises the latent and rotates the part of the
  // keys, in place, and writes both of every row to the cache.
  virtual void WriteLatent(const Tensor& kv, const LatentKvArgs& args) = 0;
  // `q` is [rows][heads · query_dim]. out[row][head] = [keys · q before the rotated numbers |
  // rotated numbers], of width() numbers.
  virtual void AbsorbQueries(const Tensor& q, const LatentQueryArgs& args, const Tensor& out) = 0;
  // Causal softmax attention of every row's heads, each of width() numbers, over the row's cached
  // positions. out[row][head] is a weighted mean of latents, of `rank` numbers.
  virtual void AttendLatents(const Tensor& q,
                             const LatentAttentionArgs& args,
                             const Tensor& out) = 0;
  // Of a model with an index: `k` is [rows][dim]. Rotates it, in place, and writes it of every row
  // to the cache.
  virtual void WriteIndexKeys(const Tensor& k, const IndexKeyArgs& args) = 0;
  // `q` is [rows][heads · dim], `weights` [rows][heads]. out[row] is [tokens]: the positions with
  // the highest Σ over heads of weight · max(0, rotated q · index key), among those up to the row's
  // own, ascending, as float32 numbers; −1 where there are fewer. Of equal scores, the earlier
  // position is chosen.
  virtual void SelectTokens(const Tensor& q,
                            const Tensor& weights,
                            const SelectArgs& args,
                            const Tensor& out) = 0;
  // AttendLatents over the positions that SelectTokens has selected for each row. The same bits
  // where these are all positions.
  virtual void AttendSelected(const Tensor& q,
                              const Tensor& selected,
                              const LatentAttentionArgs& args,
                              const Tensor& out) = 0;
  // out[row][head] = values · x[row][head], of value_dim numbers.
  virtual void ExpandValues(const Tensor& x, const LatentValueArgs& args, const Tensor& out) = 0;
};

}  // namespace baton
