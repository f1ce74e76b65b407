#include "server/api/pooled.h"

#include <openssl/evp.h>

#include <bit>
#include <cmath>

#include "server/api/fields.h"

namespace headrace {

Status want_embedding(const ServingModel& model, GenerationRequest& request) {
  const PoolingConfig& config = model.text.pooling;
  if (!config.unsupported.empty()) {
    return make_error(ErrorCode::kUnsupported,
                      "{} makes its vectors with {}, which this server does not have",
                      model.info.name, config.unsupported);
  }
  request.prototype.pooling = config.pooling;
  request.prototype.max_tokens = 0;
  return {};
}

std::vector<float> unit_vector(std::vector<float> vector, int64_t dimensions) {
  if (dimensions > 0 && dimensions < std::ssize(vector)) {
    vector.resize(static_cast<size_t>(dimensions));
  }
  const double length = std::sqrt(dot(vector, vector));
  if (length == 0) return vector;
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
  return vector;
}

double dot(std::span<const float> a, std::span<const float> b) {
  CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

std::string base64_of(std::span<const float> vector) {
  static_assert(std::endian::native == std::endian::little);
  const size_t num_bytes = vector.size_bytes();
  std::string text(4 * ((num_bytes + 2) / 3) + 1, '\0');  // and the end that the function writes
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(vector.data()),
                                     static_cast<int>(num_bytes));
  text.resize(static_cast<size_t>(length));
  return text;
}

}  // namespace headrace
