#include "common/model/model_identity.h"

#include "common/model/fingerprint.h"
#include "common/model/tokenizer_source.h"

namespace baton {

Hash128 TokenizerHashAt(const std::string& path) {
  const StatusOr<TokenizerSpec> spec = LoadTokenizerSpec(path);
  return spec.ok() ? TokenizerHash(*spec) : Hash128();
}

StatusOr<ModelIdentity> IdentifyModel(const std::string& path, const OpenOptions& options) {
  ModelIdentity identity;
  identity.tokenizer = TokenizerHashAt(path);
  if (const StatusOr<OpenedModel> whole = OpenModel(path, options); whole.ok()) {
    identity.shape = ShapeHash(whole->spec);
    identity.fingerprint = Fingerprint(whole->spec, *whole->weights);
    return identity;
  }
  BATON_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(path));
  identity.shape = ShapeHash(spec);
  return identity;
}

}  // namespace baton
