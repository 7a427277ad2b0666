#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/file_tensor.h"
#include "common/model/safetensors_file.h"

namespace baton {

// The weight files of a Hugging Face directory.
struct SafetensorsDirectory {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  // The tensors of `files` that make up the model, each name once: by file, and in the order of
  // their bytes.
  std::vector<const FileTensor*> tensors;
};

// Opens the files that model.safetensors.index.json lists, or only model.safetensors when there is
// no index. Of a tensor that several files have, the one in the file that the index names is the
// model's. A tensor that the index does not name is the model's, too, when only one file has it.
// Errors: those of SafetensorsFile::Open; InvalidArgument naming what is wrong with the index, the
// tensor that is not in its file, the tensor that two files have and the index does not name, or
// a model.safetensors beside an index that does not name this file.
StatusOr<SafetensorsDirectory> OpenSafetensorsDirectory(const std::string& directory);

}  // namespace baton
