#include "server/api/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace headrace {

Result<std::vector<std::byte>> bytes_of_base64(std::string_view text) {
  constexpr size_t kPiece = size_t{1} << 20;  // the function counts in int
  static_assert(kPiece % 4 == 0);
  const Error error{ErrorCode::kInvalidArgument,
                    "not base64 (groups of four of A-Z a-z 0-9 + / and = at the end)",
                    {},
                    {}};
  const size_t padding = text.ends_with("==") ? 2 : static_cast<size_t>(text.ends_with('='));
  const size_t digits_end = std::min(text.find('='), text.size());
  if (text.size() % 4 != 0 || digits_end != text.size() - padding) return error;
  std::vector<std::byte> bytes(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += kPiece) {
    const std::string_view piece = text.substr(at, kPiece);
    const int count = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data() + at / 4 * 3),
                                      reinterpret_cast<const unsigned char*>(piece.data()),
                                      static_cast<int>(piece.size()));
    // White space at either end is left out without a word.
    if (count != static_cast<int>(piece.size() / 4 * 3)) return error;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace headrace
