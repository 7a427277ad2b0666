#include "common/text/jinja/bytes_methods.h"

#include <algorithm>

#include <absl/strings/ascii.h>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/utf8.h"

namespace baton::jinja {
namespace {

struct Codec {
  char32_t end = 0x110000;  // code points from here on cannot be encoded
  bool utf8 = true;
  std::string errors = "strict";
};

StatusOr<Codec> ReadCodec(std::string_view function, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind(function, arguments, {"encoding", "errors"}));
  BATON_ASSIGN_OR_RETURN(const std::string given, bound.Text(0, "utf-8"));
  std::string name = absl::AsciiStrToLower(given.substr(0, 40));
  std::replace(name.begin(), name.end(), '_', '-');
  Codec codec;
  if (name == "ascii" || name == "us-ascii") {
    codec = {.end = 0x80, .utf8 = false};
  } else if (name == "latin-1" || name == "latin1" || name == "iso-8859-1") {
    codec = {.end = 0x100, .utf8 = false};
  } else if (name != "utf-8" && name != "utf8") {
    return InvalidArgument(
        "{}(): the encoding '{}' is not known; utf-8, ascii and latin-1 are", function, name);
  }
  BATON_ASSIGN_OR_RETURN(codec.errors, bound.Text(1, "strict"));
  if (codec.errors != "strict" && codec.errors != "ignore" && codec.errors != "replace") {
    return InvalidArgument("{}(): errors is '{}'; it must be strict, ignore or replace",
                           function,
                           codec.errors.substr(0, 40));
  }
  return codec;
}

StatusOr<Value> Decode(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const Codec codec, ReadCodec("decode", arguments));
  const BytesObject& all = self.bytes();
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(all.bytes.size() / 16));
  BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(3 * all.bytes.size()));
  std::string text;
  for (size_t pos = 0; pos < all.bytes.size();) {
    const auto byte = static_cast<uint8_t>(all.bytes[pos]);
    const CodePoint c = codec.utf8 ? DecodeUtf8(all.bytes, pos) : CodePoint{byte, 1};
    const std::string_view bytes = std::string_view(all.bytes).substr(pos, c.length);
    const bool known = codec.utf8 ? IsValidUtf8(bytes) : c.value < codec.end;
    pos += c.length;
    if (known) {
      AppendUtf8(text, c.value);
    } else if (codec.errors == "strict") {
      return InvalidArgument("decode(): the byte 0x{:02x} is not text in this encoding", byte);
    } else if (codec.errors == "replace") {
      AppendUtf8(text, kReplacementCharacter);
    }
  }
  return interpreter.NewString(std::move(text), all.trusted);
}

StatusOr<Value> Hex(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  BATON_RETURN_IF_ERROR(BoundArguments::Bind("hex", arguments, {}).status());
  const BytesObject& all = self.bytes();
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(all.bytes.size() / 16));
  BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(2 * all.bytes.size()));
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : all.bytes) {
    const auto value = static_cast<uint8_t>(byte);
    text.append({kDigits[value >> 4], kDigits[value & 15]});
  }
  return interpreter.NewString(std::move(text), all.trusted);
}

}  // namespace

StatusOr<Value> EncodeText(Interpreter& interpreter,
                           const Value& self,
                           const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const Codec codec, ReadCodec("encode", arguments));
  const MarkedText& text = self.text();
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(text.size() / 16));
  BATON_RETURN_IF_ERROR(interpreter.budget().CheckRoom(text.size()));
  if (codec.utf8) return Value::Bytes(text.text(), text.trusted(), interpreter.budget());
  std::string bytes;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text.text(), pos);
    pos += c.length;
    if (c.value < codec.end) {
      bytes.push_back(static_cast<char>(c.value));
    } else if (codec.errors == "strict") {
      return InvalidArgument("encode(): U+{:04X} is not in this encoding", uint32_t{c.value});
    } else if (codec.errors == "replace") {
      bytes.push_back('?');
    }
  }
  return Value::Bytes(std::move(bytes), text.trusted(), interpreter.budget());
}

Method FindBytesMethod(const std::string& name) {
  if (name == "decode") return Decode;
  return name == "hex" ? Hex : nullptr;
}

}  // namespace baton::jinja
