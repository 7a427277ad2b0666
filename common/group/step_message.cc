#include "common/group/step_message.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/base/check.h"
#include "common/base/hash.h"

namespace baton {
namespace {

// The start of a message; the arrays follow in the order of the counts, without gaps.
struct Header {
  uint64_t number = 0;
  uint64_t digest = 0;  // DigestOf
  uint32_t tokens = 0;
  uint32_t positions = 0;
  uint32_t sequences = 0;
  uint32_t block_tables = 0;
  uint32_t logit_rows = 0;
  uint32_t copies = 0;
  int32_t state_blocks = 0;
  uint32_t results = 0;  // RowResults
};
static_assert(sizeof(Header) == 48 && std::is_trivially_copyable_v<SequenceRows> &&
              std::is_trivially_copyable_v<BlockCopy>);

Header HeaderOf(const StepInput& input, std::span<const BlockCopy> copies) {
  Header header;
  header.tokens = static_cast<uint32_t>(input.tokens.size());
  header.positions = static_cast<uint32_t>(input.positions.size());
  header.sequences = static_cast<uint32_t>(input.sequences.size());
  header.block_tables = static_cast<uint32_t>(input.block_tables.size());
  header.logit_rows = static_cast<uint32_t>(input.logit_rows.size());
  header.copies = static_cast<uint32_t>(copies.size());
  header.state_blocks = input.state_blocks;
  header.results = static_cast<uint32_t>(input.results);
  return header;
}

// XXH3 of what follows the header, and of the header with that in place of its digest.
uint64_t DigestOf(Header header, std::span<const std::byte> body) {
  header.digest = Xxh3(body);
  return Xxh3(std::as_bytes(std::span(&header, 1)));
}

size_t BodyBytes(const Header& header) {
  return sizeof(TokenId) * header.tokens +
         sizeof(int32_t) * (size_t{header.positions} + header.block_tables + header.logit_rows) +
         sizeof(SequenceRows) * header.sequences + sizeof(BlockCopy) * header.copies;
}

template <class T>
void Append(std::span<const T> values, std::byte*& at) {
  if (!values.empty()) std::memcpy(at, values.data(), values.size_bytes());
  at += values.size_bytes();
}

template <class T>
std::span<const T> Take(uint32_t count, const std::byte*& at) {
  const std::span<const T> values(reinterpret_cast<const T*>(at), count);
  at += values.size_bytes();
  return values;
}

}  // namespace

size_t StepMessageBytes(const StepInput& input, std::span<const BlockCopy> copies) {
  return sizeof(Header) + BodyBytes(HeaderOf(input, copies));
}

size_t MaxStepMessageBytes(int64_t rows, int64_t sequences, int64_t blocks) {
  const auto count = [](int64_t value) { return static_cast<size_t>(value); };
  // Each row may be listed as a sequence of its own.
  const size_t step = count(rows) * (sizeof(TokenId) + 2 * sizeof(int32_t) + sizeof(SequenceRows)) +
                      count(sequences) * count(blocks) * sizeof(int32_t);
  return sizeof(Header) + std::max(step, count(blocks) * sizeof(BlockCopy));
}

void EncodeStep(const StepMessage& message, std::span<std::byte> to) {
  const StepInput& input = message.input;
  Header header = HeaderOf(input, message.copies);
  const size_t bytes = BodyBytes(header);
  BATON_CHECK(sizeof(Header) + bytes <= to.size(), "{} bytes of a step in {}", bytes, to.size());
  std::byte* at = to.data() + sizeof(Header);
  Append(input.tokens, at);
  Append(input.positions, at);
  Append(input.sequences, at);
  Append(input.block_tables, at);
  Append(input.logit_rows, at);
  Append(message.copies, at);
  header.number = message.number;
  header.digest = DigestOf(header, {to.data() + sizeof(Header), bytes});
  std::memcpy(to.data(), &header, sizeof(Header));
}

StatusOr<StepMessage> DecodeStep(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(Header)) {
    return MakeStatus(StatusCode::kInternal,
                      "a step message of {} bytes is shorter than its header of {}",
                      bytes.size(),
                      sizeof(Header));
  }
  std::memcpy(&header, bytes.data(), sizeof(Header));
  const size_t body = BodyBytes(header);
  if (bytes.size() != sizeof(Header) + body) {
    return MakeStatus(StatusCode::kInternal,
                      "step message {} has {} bytes; its header says {}",
                      header.number,
                      bytes.size(),
                      sizeof(Header) + body);
  }
  const uint64_t digest = DigestOf(header, bytes.subspan(sizeof(Header)));
  if (digest != header.digest) {
    return MakeStatus(StatusCode::kInternal,
                      "step message {} has the digest {:016x}; its header says {:016x}",
                      header.number,
                      digest,
                      header.digest);
  }
  StepMessage message;
  message.number = header.number;
  const std::byte* at = bytes.data() + sizeof(Header);
  message.input.tokens = Take<TokenId>(header.tokens, at);
  message.input.positions = Take<int32_t>(header.positions, at);
  message.input.sequences = Take<SequenceRows>(header.sequences, at);
  message.input.block_tables = Take<int32_t>(header.block_tables, at);
  message.input.logit_rows = Take<int32_t>(header.logit_rows, at);
  message.copies = Take<BlockCopy>(header.copies, at);
  message.input.state_blocks = header.state_blocks;
  message.input.results = static_cast<RowResults>(header.results);
  return message;
}

}  // namespace baton
