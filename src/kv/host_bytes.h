// Host memory for saved states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace polykv {

// A block whose content is undefined until it is written. Large ones cost nothing until then.
class HostBytes {
 public:
  HostBytes() = default;  // of size 0
  // Of size 0 if the system has no memory for it.
  explicit HostBytes(size_t size)
      : bytes_(new(std::nothrow) uint8_t[size]), size_(bytes_ != nullptr ? size : 0) {}

  size_t size() const { return size_; }
  std::span<uint8_t> span() { return {bytes_.get(), size_}; }
  std::span<const uint8_t> span() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
};

}  // namespace polykv
