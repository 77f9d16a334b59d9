#include "api/http_server.h"

#include <sys/socket.h>

#include <cpp-httplib/httplib.h>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <exception>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "api/cors.h"
#include "api/http_listener.h"
#include "api/problem.h"
#include "api/protocol/json.h"

namespace polykv {
namespace {

constexpr std::string_view kStatusRoutes[] = {"/health", "/v1/health", "/metrics", "/slots"};

// The accepting thread only hands connections on.
class AcceptingThread final : public httplib::TaskQueue {
 public:
  bool enqueue(std::function<void()> job) override {
    job();
    return true;
  }
  void shutdown() override {}
};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Two hexadecimal digits at `text`, or -1.
int HexByte(const char* text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  const int high = digit(text[0]);
  const int low = digit(text[1]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// The library decodes the query but not the parts of a path.
std::string DecodePathPart(const std::string& part) {
  std::string decoded;
  for (size_t i = 0; i < part.size(); ++i) {
    const int byte = part[i] == '%' && i + 2 < part.size() ? HexByte(&part[i + 1]) : -1;
    decoded += byte < 0 ? part[i] : static_cast<char>(byte);
    if (byte >= 0) i += 2;
  }
  return decoded;
}

// The text fields of a form as a JSON object; a name that comes again gets an array.
std::string FormJson(const httplib::MultipartFormData& form) {
  Json object = Json::object();
  for (const auto& [name, field] : form.fields) {
    Json& value = object[name];
    if (value.is_null()) {
      value = field.content;
    } else {
      if (!value.is_array()) value = Json::array({value});
      value.push_back(field.content);
    }
  }
  return JsonText(object);
}

HttpRequest FromLibrary(const httplib::Request& request, const Caller& caller) {
  HttpRequest out;
  out.caller = caller;
  out.path = request.path;
  out.body = request.is_multipart_form_data() ? FormJson(request.form) : request.body;
  for (const auto& [name, value] : request.params) out.params[name] = value;
  for (const auto& [name, value] : request.path_params) out.params[name] = DecodePathPart(value);
  for (const auto& [name, value] : request.headers) out.headers.emplace(Lower(name), value);
  out.should_stop = request.is_connection_closed;
  return out;
}

// A response on its way out, call by call.
struct OpenStream {
  std::function<bool(std::string*)> next;
  bool outlives_client = false;
  bool ended = false;

  void Fill(std::string* chunk) { ended = !next(chunk); }

  void Close() {
    while (outlives_client && !ended) {
      std::string unsent;
      Fill(&unsent);
    }
    next = nullptr;
  }
};

void ToLibrary(HttpResponse response, httplib::Response* out) {
  out->status = response.status;
  for (const auto& [name, value] : response.headers) out->set_header(name, value);
  if (!response.next) {
    out->set_content(std::move(response.body), response.content_type);
    return;
  }
  out->set_header("X-Accel-Buffering", "no");  // or proxies keep the events back
  const auto stream = std::make_shared<OpenStream>(
      OpenStream{.next = std::move(response.next), .outlives_client = response.outlives_client});
  const auto provide = [stream](size_t, httplib::DataSink& sink) {
    std::string chunk;
    stream->Fill(&chunk);
    if (!chunk.empty() && !sink.write(chunk.data(), chunk.size())) return false;
    if (stream->ended) sink.done();
    return !stream->ended;
  };
  out->set_chunked_content_provider(response.content_type, provide,
                                    [stream](bool) { stream->Close(); });
}

HttpHandler Guarded(HttpHandler handler) {
  return [handler = std::move(handler)](const HttpRequest& request) -> HttpResponse {
    try {
      return handler(request);
    } catch (const std::invalid_argument& error) {
      return ProblemResponse(InvalidRequest(error.what()));
    } catch (const std::exception& error) {
      return ProblemResponse({.status = 500, .type = "server_error", .message = error.what()});
    }
  };
}

// An answer of the front door, in which llama-server orders the fields in another way.
void SetProblem(const Problem& problem, httplib::Response* response) {
  const Json error = {
      {"message", problem.message}, {"type", problem.type}, {"code", problem.status}};
  HttpResponse answer = ProblemResponse(problem);
  answer.body = JsonText({{"error", error}});
  ToLibrary(std::move(answer), response);
}

// Compares without telling by its duration how much was right.
bool SameSecret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |=
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

std::string KeyOf(const httplib::Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  std::string key = request.get_header_value("Authorization");
  if (key.empty()) key = request.get_header_value("X-Api-Key");
  if (key.starts_with(kBearer)) key.erase(0, kBearer.size());
  return key;
}

// What the library refuses by itself comes without a body.
Problem LibraryProblem(int status, size_t max_body_bytes) {
  if (status == 404) {
    return {.status = 404, .type = "not_found_error", .message = "File Not Found"};
  }
  if (status == 413) {
    return {
        .status = 413,
        .type = "invalid_request_error",
        .message = "The request body is larger than " + std::to_string(max_body_bytes) + " bytes"};
  }
  return {.status = status,
          .type = status < 500 ? "invalid_request_error" : "server_error",
          .message = httplib::status_message(status)};
}

bool IsSocketPath(const std::string& host) { return host.ends_with(".sock"); }

}  // namespace

struct HttpServer::Impl {
  explicit Impl(HttpServerConfig the_config)
      : config(std::move(the_config)), threads(config.max_connections) {
    for (size_t i = 0; i < config.hosts.size(); ++i) AddListener();
  }

  void AddListener();
  bool IsPage(const std::string& path) const;
  bool IsPublic(const std::string& path) const;
  bool IsStatus(const httplib::Request& request) const;
  std::optional<Caller> FindCaller(const httplib::Request& request) const;
  bool Admit(const httplib::Request& request, httplib::Response* response) const;
  httplib::Server::Handler Register(const std::string& path, const HttpHandler& handler);
  Result<std::string> Bind(size_t i);

  const HttpServerConfig config;
  int port = config.port;
  std::atomic<bool> ready{false};
  ConnectionThreads threads;
  std::vector<std::unique_ptr<HttpListener>> servers;
  std::map<std::string, HttpHandler> handlers;
  std::set<std::string> pages;  // with the prefix
  std::vector<std::thread> listeners;
};

void HttpServer::Impl::AddListener() {
  auto server = std::make_unique<HttpListener>(&threads);
  server->set_default_headers({{"Server", "llama.cpp"}});  // clients tell servers apart by it
  server->set_payload_max_length(config.max_body_bytes);
  server->set_read_timeout(config.read_timeout_s);
  server->set_write_timeout(config.write_timeout_s);
  server->set_ipv6_v6only(config.hosts.size() > 1);  // [::] must not take 0.0.0.0 as well
  server->set_socket_options([reuse_port = config.reuse_port](socket_t socket) {
    httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (reuse_port) httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEPORT, 1);
  });
  server->set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        const bool handled = !Admit(request, &response);
        return handled ? httplib::Server::HandlerResponse::Handled
                       : httplib::Server::HandlerResponse::Unhandled;
      });
  server->set_error_handler([this](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) {
      SetProblem(LibraryProblem(response.status, config.max_body_bytes), &response);
    }
    return httplib::Server::HandlerResponse::Handled;
  });
  server->set_post_routing_handler(
      [](const httplib::Request& request, httplib::Response& response) {
        const std::string id = request.get_header_value("X-Request-Id");
        if (IsName(id)) response.set_header("X-Request-Id", id);
      });
  server->new_task_queue = [] { return new AcceptingThread; };
  if (!config.static_path.empty()) {
    server->set_mount_point(config.prefix + "/", config.static_path);
  }
  servers.push_back(std::move(server));
}

bool HttpServer::Impl::IsPage(const std::string& path) const {
  return path == config.prefix + "/" || pages.contains(path);
}

bool HttpServer::Impl::IsPublic(const std::string& path) const {
  return IsPage(path) || path == config.prefix + "/health" || path == config.prefix + "/v1/health";
}

bool HttpServer::Impl::IsStatus(const httplib::Request& request) const {
  return request.method == "GET" &&
         std::any_of(std::begin(kStatusRoutes), std::end(kStatusRoutes),
                     [&](std::string_view route) {
                       return request.path == config.prefix + std::string(route);
                     });
}

// Nothing if a key is needed and the request has no valid one.
std::optional<Caller> HttpServer::Impl::FindCaller(const httplib::Request& request) const {
  if (config.api_keys.empty()) return Caller{};
  const std::string key = KeyOf(request);
  const auto n_keys = static_cast<TenantId>(config.api_keys.size());
  if (!config.admin_key.empty() && SameSecret(key, config.admin_key)) {
    return Caller{.tenant = n_keys + 1, .is_admin = true};
  }
  for (TenantId i = 0; i < n_keys; ++i) {
    if (!SameSecret(key, config.api_keys[static_cast<size_t>(i)])) continue;
    return config.isolate_keys ? Caller{.tenant = i + 1, .is_admin = false} : Caller{};
  }
  return std::nullopt;
}

// False if the request has been answered here.
bool HttpServer::Impl::Admit(const httplib::Request& request, httplib::Response* response) const {
  const std::string origin = AllowedOrigin(config.cors_origins, config.cors_credentials,
                                           request.get_header_value("Origin"));
  if (!origin.empty()) response->set_header("Access-Control-Allow-Origin", origin);
  if (request.method == "OPTIONS") {  // browsers ask without the key
    response->set_header("Access-Control-Allow-Credentials",
                         config.cors_credentials ? "true" : "false");
    response->set_header("Access-Control-Allow-Methods", config.cors_methods);
    response->set_header("Access-Control-Allow-Headers", config.cors_headers);
    response->set_content("", "text/html");
    return false;
  }
  if (!ready.load() && !IsPage(request.path)) {
    SetProblem({.status = 503, .type = "unavailable_error", .message = "Loading model"}, response);
    return false;
  }
  if (HttpListener::IsOverload(request) && !IsStatus(request)) {
    SetProblem({.status = 503,
                .type = "unavailable_error",
                .message = "too many connections are open",
                .retry_after_s = 5},
               response);
    return false;
  }
  if (!IsPublic(request.path) && !FindCaller(request).has_value()) {
    SetProblem({.status = 401, .type = "authentication_error", .message = "Invalid API Key"},
               response);
    return false;
  }
  return true;
}

httplib::Server::Handler HttpServer::Impl::Register(const std::string& path,
                                                    const HttpHandler& handler) {
  HttpHandler guarded = Guarded(handler);
  handlers.emplace(path, guarded);
  return [this, handler = std::move(guarded)](const httplib::Request& request,
                                              httplib::Response& response) {
    const Caller nobody{.is_admin = false};  // on a public route
    ToLibrary(handler(FromLibrary(request, FindCaller(request).value_or(nobody))), &response);
  };
}

Result<std::string> HttpServer::Impl::Bind(size_t i) {
  httplib::Server& server = *servers[i];
  const std::string& host = config.hosts[i];
  if (IsSocketPath(host)) {
    server.set_address_family(AF_UNIX);
    if (server.bind_to_port(host, 1)) return "unix://" + host;  // the port means nothing there
    return Problem{.message = "cannot listen on the socket " + host};
  }
  const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  const bool bound =
      port == 0 ? (port = server.bind_to_any_port(host)) > 0 : server.bind_to_port(host, port);
  if (bound) return "http://" + shown + ":" + std::to_string(port);
  return Problem{.message = "cannot listen on " + shown + ":" + std::to_string(config.port) +
                            ": the port is taken or the address is not this machine's"};
}

HttpServer::HttpServer(HttpServerConfig config)
    : impl_(std::make_unique<Impl>(std::move(config))) {}

HttpServer::~HttpServer() {
  Stop();
  Join();
}

void HttpServer::Get(const std::string& path, const HttpHandler& handler) {
  const httplib::Server::Handler adapted = impl_->Register(path, handler);
  for (const auto& server : impl_->servers) {
    server->Get(impl_->config.prefix + path, adapted);
  }
}

void HttpServer::GetPage(const std::string& path, const HttpHandler& handler) {
  impl_->pages.insert(impl_->config.prefix + path);
  Get(path, handler);
}

void HttpServer::Post(const std::string& path, const HttpHandler& handler) {
  const httplib::Server::Handler adapted = impl_->Register(path, handler);
  for (const auto& server : impl_->servers) {
    server->Post(impl_->config.prefix + path, adapted);
  }
}

void HttpServer::Delete(const std::string& path, const HttpHandler& handler) {
  const httplib::Server::Handler adapted = impl_->Register(path, handler);
  for (const auto& server : impl_->servers) {
    server->Delete(impl_->config.prefix + path, adapted);
  }
}

const std::map<std::string, HttpHandler>& HttpServer::handlers() const { return impl_->handlers; }

Result<std::vector<std::string>> HttpServer::Start() {
  if (impl_->port == 0 && impl_->config.hosts.size() > 1) {
    return Problem{.message = "--port 0 works with one --host only"};
  }
  std::vector<std::string> addresses;
  for (size_t i = 0; i < impl_->servers.size(); ++i) {
    Result<std::string> address = impl_->Bind(i);
    if (!address.ok()) return address.problem();
    addresses.push_back(address.value());
  }
  for (const auto& server : impl_->servers) {
    impl_->listeners.emplace_back([listener = server.get()] { listener->listen_after_bind(); });
    server->wait_until_ready();
  }
  return addresses;
}

void HttpServer::SetReady() { impl_->ready.store(true); }

int HttpServer::n_open() const {
  int n = 0;
  for (const auto& server : impl_->servers) n += server->n_requests();
  return n;
}

void HttpServer::Stop() {
  for (const auto& server : impl_->servers) server->stop();
}

void HttpServer::Join() {
  for (std::thread& listener : impl_->listeners) listener.join();
  impl_->listeners.clear();
  for (const auto& server : impl_->servers) server->CutConnections();
  impl_->threads.usual.Join();
  impl_->threads.reserved.Join();
}

std::string HttpRequest::Param(const std::string& name) const {
  const auto found = params.find(name);
  return found == params.end() ? "" : found->second;
}

bool HttpRequest::IsSet(const std::string& name) const {
  const std::string value = Param(name);
  return value == "1" || value == "true";
}

std::string HttpRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

}  // namespace polykv
