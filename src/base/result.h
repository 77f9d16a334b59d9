// A client's fault, or a limit that was reached, as a value: what happened, why, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"

namespace polykv {

// A further field of an error's body; monostate: null.
using Fact = std::variant<std::monostate, bool, int64_t, double, std::string>;
using Facts = std::vector<std::pair<std::string, Fact>>;

template <typename T>
Fact FactOrNull(const std::optional<T>& value) {
  if (!value) return std::monostate{};
  return *value;
}

// The body of an HTTP error, before it is JSON: {"error":{"code","message","type",…}}.
struct Problem {
  int status = 500;     // HTTP status, also "code"
  std::string type;     // machine-readable, e.g. "invalid_request_error", "no_free_cells"
  std::string message;  // for people
  std::optional<int32_t> n_prompt_tokens = {};  // with type exceed_context_size_error
  std::optional<int32_t> n_ctx = {};            // with type exceed_context_size_error
  std::optional<int32_t> retry_after_s = {};    // header Retry-After
  std::optional<int32_t> mismatch_pos = {};     // first position at which tokens differ
  Facts facts = {};                             // what else its reader can decide by
};

inline Problem InvalidRequest(std::string message) {
  return {.status = 400, .type = "invalid_request_error", .message = std::move(message)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}            // NOLINT: implicit by design
  Result(Problem problem) : state_(std::move(problem)) {}  // NOLINT: implicit by design

  bool ok() const { return std::holds_alternative<T>(state_); }
  T& value() {
    POLYKV_CHECK(ok());
    return std::get<T>(state_);
  }
  const T& value() const {
    POLYKV_CHECK(ok());
    return std::get<T>(state_);
  }
  Problem& problem() {
    POLYKV_CHECK(!ok());
    return std::get<Problem>(state_);
  }
  const Problem& problem() const {
    POLYKV_CHECK(!ok());
    return std::get<Problem>(state_);
  }

 private:
  std::variant<T, Problem> state_;
};

}  // namespace polykv
