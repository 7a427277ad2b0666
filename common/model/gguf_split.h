#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/gguf_file.h"

namespace baton {

// Models that llama.cpp's gguf-split divides into several files
// (https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split): part i of n, counted from
// 1, is NAME-%05d-of-%05d.gguf and has the metadata split.no (i − 1), split.count (n) and
// split.tensors.count (of all parts together). The first part has all other metadata.

// Opens the parts 2, 3, … of the model whose first part is `first`; none when the model is one
// file. Errors: those of GgufFile::OpenPart; InvalidArgument when `first` is a later part, naming
// the first one; when the name of the file does not tell where the others are; when a part has
// another number, count or total of tensors; when two parts have a tensor of the same name.
StatusOr<std::vector<std::unique_ptr<GgufFile>>> OpenOtherParts(const GgufFile& first);

// The path of part `number` (from 1) beside `path`, whose name is that of any part. Empty when
// `path` does not end as the name of a part of `count` parts.
std::string PathOfPart(std::string_view path, int64_t number, int64_t count);

// "m-00001-of-00003" → "m". Other names stay.
std::string_view WithoutPartNumber(std::string_view stem);

}  // namespace baton
