// DelegatingBackend: what a back end around another one answers as the inner one does. Ops, memory
// and packing of weights are the derived class's. Owns the inner back end; rules as in backend.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace headrace {

class DelegatingBackend : public Backend {
 public:
  explicit DelegatingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  void begin_turn() override { inner_->begin_turn(); }
  void end_turn() override { inner_->end_turn(); }
  void keep_apart() override { inner_->keep_apart(); }
  bool has_spare_core() const override { return inner_->has_spare_core(); }

  std::string packing_id() const override { return inner_->packing_id(); }
  Status reserve(int64_t max_rows) override { return inner_->reserve(max_rows); }
  size_t packed_bytes(std::span<const WeightView> parts, PackForm form) const override {
    return inner_->packed_bytes(parts, form);
  }
  Result<std::unique_ptr<PackedAdapter>> pack_adapter(
      std::span<const WeightDelta> deltas) override {
    return inner_->pack_adapter(deltas);
  }
  size_t kv_plane_bytes(const KvPlane& plane) const override {
    return inner_->kv_plane_bytes(plane);
  }

  int num_threads() const override { return inner_->num_threads(); }
  int64_t num_joins() const override { return inner_->num_joins(); }
  std::string_view isa() const override { return inner_->isa(); }
  std::string numerics(KvType kv_type) const override { return inner_->numerics(kv_type); }
  KvType default_kv_type() const override { return inner_->default_kv_type(); }
  std::vector<KernelInfo> kernels() const override { return inner_->kernels(); }

 protected:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace headrace
