#include "api/protocol/attach_fields.h"

#include <limits>
#include <optional>
#include <utility>

#include "api/protocol/json.h"
#include "server-common.h"

namespace polykv {
namespace {

Problem BadField(const std::string& name, const std::string& wants) {
  return InvalidRequest("Field '" + name + "': " + wants);
}

// Looks fields up where a client may have put them.
class FieldSource {
 public:
  explicit FieldSource(const common_json& body) : body_(body) {
    if (body.contains("opencoti") && body.at("opencoti").is_object())
      nested_ = &body.at("opencoti");
  }

  const common_json* FindOrNull(const char* name) const {
    for (const common_json* object : {&body_, nested_}) {
      if (object != nullptr && object->contains(name) && !object->at(name).is_null()) {
        return &object->at(name);
      }
    }
    return nullptr;
  }

 private:
  const common_json& body_;
  const common_json* nested_ = nullptr;
};

std::optional<Problem> ReadBool(const FieldSource& fields, const char* name, bool* value,
                                bool* sent) {
  const common_json* field = fields.FindOrNull(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_boolean()) return BadField(name, "must be true or false");
  *value = field->get<bool>();
  *sent = true;
  return std::nullopt;
}

std::optional<Problem> ReadPool(const FieldSource& fields, const HeaderMap& headers,
                                AttachFields* out) {
  constexpr char kWants[] = "must be a pool's number or its name (1 to 256 bytes of UTF-8)";
  std::string name = "pool_id";
  if (const common_json* field = fields.FindOrNull("pool_id")) {
    if (field->is_string()) {
      out->spec.pool = field->get<std::string>();
    } else if (field->is_number_integer() && field->get<double>() >= 0) {
      out->spec.pool = field->dump();
    } else {
      return BadField(name, kWants);
    }
  } else if (const auto header = headers.find("x-polykv-pool"); header != headers.end()) {
    name = "X-Polykv-Pool";
    out->spec.pool = header->second;
  } else {
    return std::nullopt;
  }
  out->sent = true;
  if (!IsName(out->spec.pool)) return BadField(name, kWants);
  return std::nullopt;
}

std::optional<Problem> ReadSession(const FieldSource& fields, const HeaderMap& headers,
                                   AttachFields* out) {
  constexpr char kWants[] = "must be 1 to 256 bytes of UTF-8 without control characters";
  std::string name = "session_id";
  if (const common_json* field = fields.FindOrNull("session_id")) {
    if (!field->is_string()) return BadField(name, kWants);
    out->spec.session_id = field->get<std::string>();
  } else if (const auto header = headers.find("x-polykv-session"); header != headers.end()) {
    name = "X-Polykv-Session";
    out->spec.session_id = header->second;
  } else {
    return std::nullopt;
  }
  out->sent = true;
  if (!IsName(out->spec.session_id)) return BadField(name, kWants);
  return std::nullopt;
}

std::optional<Problem> ReadMissRule(const FieldSource& fields, AttachFields* out) {
  const common_json* field = fields.FindOrNull("on_pool_miss");
  if (field == nullptr) return std::nullopt;
  const std::string rule = field->is_string() ? field->get<std::string>() : "";
  if (rule != "prefill" && rule != "error") {
    return BadField("on_pool_miss", "must be \"prefill\" or \"error\"");
  }
  out->spec.error_on_miss = rule == "error";
  out->sent = true;
  return std::nullopt;
}

std::optional<Problem> ReadPrefix(const FieldSource& fields, AttachFields* out) {
  if (fields.FindOrNull("shared_pool_slot") != nullptr) {
    return BadField("shared_pool_slot", "not supported by this server; use pool_id");
  }
  const common_json* field = fields.FindOrNull("shared_prefix_n_tokens");
  if (field == nullptr) return std::nullopt;
  const double value = field->is_number_integer() ? field->get<double>() : -1;
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
    return BadField("shared_prefix_n_tokens", "must be a number of tokens, 0 or more");
  }
  if (out->spec.pool.empty()) return BadField("shared_prefix_n_tokens", "needs a pool_id");
  out->spec.shared_prefix_n_tokens = static_cast<int32_t>(value);
  out->sent = true;
  return std::nullopt;
}

}  // namespace

Result<AttachFields> ParseAttachFields(const common_json& body, const HeaderMap& headers) {
  const FieldSource fields(body);
  AttachFields out;
  bool overcommit = false;
  for (std::optional<Problem> problem :
       {ReadPool(fields, headers, &out), ReadSession(fields, headers, &out),
        ReadMissRule(fields, &out), ReadPrefix(fields, &out),
        ReadBool(fields, "session_end", &out.spec.session_end, &out.sent),
        ReadBool(fields, "overcommit", &overcommit, &out.sent)}) {
    if (problem.has_value()) return *std::move(problem);
  }
  return out;
}

}  // namespace polykv
