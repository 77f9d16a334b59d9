// Which LoRA adapters a model computes with. A value: cells belong to the set they were computed
// with, and one Decode has one set.
#pragma once

#include <cstdint>
#include <map>

namespace polykv {

class AdapterSet {
 public:
  AdapterSet() = default;  // none: the bare model
  // Of `n_adapters` that are loaded, those in `scale_of` (by id from 0) whose scale is not 0. What
  // is said of other ids has no effect.
  AdapterSet(const std::map<int32_t, float>& scale_of, int32_t n_adapters) {
    for (const auto& [id, scale] : scale_of) {
      if (id >= 0 && id < n_adapters && scale != 0.0F) scales_.emplace(id, scale);
    }
  }

  const std::map<int32_t, float>& scales() const { return scales_; }  // by id; no zeros
  float ScaleOf(int32_t id) const {
    const auto it = scales_.find(id);
    return it == scales_.end() ? 0.0F : it->second;
  }

  bool operator==(const AdapterSet&) const = default;

 private:
  std::map<int32_t, float> scales_;
};

}  // namespace polykv
