#include "api/protocol/server_tools.h"

#include <exception>
#include <utility>

#include "common.h"
#include "server-tools.h"

namespace polykv {
namespace {

// A call and its answer, in llama-server's types; they refer to each other.
struct Exchange {
  Exchange(const std::string& body, const HeaderMap& headers, std::function<bool()> stop)
      : should_stop(std::move(stop)),
        request{.params = {},
                .headers = headers,
                .path = "/tools",
                .query_string = {},
                .body = body,
                .files = {},
                .should_stop = should_stop} {}

  const std::function<bool()> should_stop;
  const server_http_req request;
  server_http_res_ptr response;
};

}  // namespace

struct ServerTools::Impl {
  server_mcp no_mcp;
  server_tools tools;
};

Result<std::unique_ptr<ServerTools>> ServerTools::Make(const common_params& params) {
  if (params.server_tools.empty()) return std::unique_ptr<ServerTools>();
  auto impl = std::make_unique<Impl>();
  try {
    impl->tools.setup(params.server_tools, impl->no_mcp, params.server_tools_runtime);
  } catch (const std::exception& error) {
    return Problem{.message = std::string("--tools: ") + error.what()};
  }
  return std::unique_ptr<ServerTools>(new ServerTools(std::move(impl)));
}

ServerTools::ServerTools(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ServerTools::~ServerTools() = default;

std::string ServerTools::ListBody() const {
  const Exchange exchange("", {}, [] { return false; });
  return impl_->tools.handle_get(exchange.request)->data;
}

ServerTools::Answer ServerTools::Call(const std::string& body, const HeaderMap& headers,
                                      const std::function<bool()>& should_stop) const {
  const auto exchange = std::make_shared<Exchange>(body, headers, should_stop);
  exchange->response = impl_->tools.handle_post(exchange->request);
  server_http_res& response = *exchange->response;
  Answer answer{.status = response.status,
                .content_type = std::move(response.content_type),
                .body = std::move(response.data)};
  if (response.is_stream()) {
    answer.next = [exchange](std::string* out) { return exchange->response->next(*out); };
  }
  return answer;
}

}  // namespace polykv
