// llama-server's own tools (--tools): files and commands of this machine, for the model's client.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "api/protocol/attach_fields.h"
#include "base/result.h"

struct common_params;

namespace polykv {

// Any thread.
class ServerTools {
 public:
  struct Answer {
    int status = 200;
    std::string content_type;
    std::string body;
    // When set, instead of the body: as HttpResponse::next. Destroying it waits for the tool, which
    // ends early when `should_stop` says so.
    std::function<bool(std::string*)> next;
  };

  // Null without --tools. A Problem is one line for a person.
  static Result<std::unique_ptr<ServerTools>> Make(const common_params& params);
  ~ServerTools();

  std::string ListBody() const;
  Answer Call(const std::string& body, const HeaderMap& headers,
              const std::function<bool()>& should_stop) const;

 private:
  struct Impl;

  explicit ServerTools(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace polykv
