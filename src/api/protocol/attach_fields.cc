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

// A number from 0 to the largest int32_t.
std::optional<Problem> ReadCount(const FieldSource& fields, const char* name, const char* wants,
                                 std::optional<int32_t>* value, bool* sent) {
  const common_json* field = fields.FindOrNull(name);
  if (field == nullptr) return std::nullopt;
  const double number = field->is_number_integer() ? field->get<double>() : -1;
  if (number < 0 || number > std::numeric_limits<int32_t>::max()) return BadField(name, wants);
  *value = static_cast<int32_t>(number);
  *sent = true;
  return std::nullopt;
}

std::optional<Problem> ReadPrefix(const FieldSource& fields, AttachFields* out) {
  AttachSpec& spec = out->spec;
  if (auto problem = ReadCount(fields, "shared_pool_slot", "must be the number of a slot",
                               &spec.shared_pool_slot, &out->sent)) {
    return problem;
  }
  if (spec.shared_pool_slot.has_value() && !spec.pool.empty()) {
    return BadField("shared_pool_slot", "cannot be combined with pool_id");
  }
  if (auto problem =
          ReadCount(fields, "shared_prefix_n_tokens", "must be a number of tokens, 0 or more",
                    &spec.shared_prefix_n_tokens, &out->sent)) {
    return problem;
  }
  const bool has_source = !spec.pool.empty() || spec.shared_pool_slot.has_value();
  if (spec.shared_prefix_n_tokens.has_value() && !has_source) {
    return BadField("shared_prefix_n_tokens", "needs a pool_id or a shared_pool_slot");
  }
  return std::nullopt;
}

}  // namespace

Result<AttachFields> ParseAttachFields(const common_json& body, const HeaderMap& headers) {
  const FieldSource fields(body);
  AttachFields out;
  for (std::optional<Problem> problem :
       {ReadPool(fields, headers, &out), ReadSession(fields, headers, &out),
        ReadMissRule(fields, &out), ReadPrefix(fields, &out),
        ReadBool(fields, "session_end", &out.spec.session_end, &out.sent),
        ReadBool(fields, "overcommit", &out.spec.overcommit, &out.sent)}) {
    if (problem.has_value()) return *std::move(problem);
  }
  return out;
}

}  // namespace polykv
