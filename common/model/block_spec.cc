#include "common/model/block_spec.h"

#include "common/base/check.h"

namespace baton {

std::string_view Name(NormKind norm) {
  switch (norm) {
    case NormKind::kRms:
      return "RMS norm";
    case NormKind::kLayer:
      return "LayerNorm";
    case NormKind::kLayerWithBias:
      return "LayerNorm with bias";
  }
  BATON_CHECK(false, "norm {}", static_cast<int>(norm));
}

std::string_view Name(ResidualForm form) {
  switch (form) {
    case ResidualForm::kPreNorm:
      return "pre-norm";
    case ResidualForm::kPreAndPostNorm:
      return "pre- and post-norm";
    case ResidualForm::kPostNorm:
      return "post-norm";
    case ResidualForm::kParallel:
      return "parallel";
    case ResidualForm::kParallelTwoNorms:
      return "parallel with two norms";
  }
  BATON_CHECK(false, "residual form {}", static_cast<int>(form));
}

std::string_view Name(QkNorm norm) {
  switch (norm) {
    case QkNorm::kNone:
      return "none";
    case QkNorm::kHead:
      return "of heads";
    case QkNorm::kHeadAfterRope:
      return "of heads after rope";
    case QkNorm::kProjection:
      return "of all heads together";
    case QkNorm::kHeadLayer:
      return "LayerNorm of heads";
    case QkNorm::kUnitAfterRope:
      return "of heads after rope, without weights";
  }
  BATON_CHECK(false, "norm of q and k {}", static_cast<int>(norm));
}

std::string_view Name(FeedForward kind) {
  switch (kind) {
    case FeedForward::kSiluGated:
      return "silu gated";
    case FeedForward::kGelu:
      return "gelu";
    case FeedForward::kGeluTanh:
      return "gelu tanh";
    case FeedForward::kGeluTanhGated:
      return "gelu tanh gated";
    case FeedForward::kSquaredRelu:
      return "squared relu";
  }
  BATON_CHECK(false, "feed-forward {}", static_cast<int>(kind));
}

std::string_view Name(RecurrentRule rule) {
  switch (rule) {
    case RecurrentRule::kDelta:
      return "gated delta nets";
    case RecurrentRule::kChannelDelta:
      return "Kimi delta attention";
    case RecurrentRule::kStateSpace:
      return "Mamba 2";
    case RecurrentRule::kSelectiveScan:
      return "Mamba";
  }
  BATON_CHECK(false, "recurrent rule {}", static_cast<int>(rule));
}

}  // namespace baton
