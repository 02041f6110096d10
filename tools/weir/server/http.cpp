// The only file that knows cpp-httplib: it reads requests and writes replies over a stream of our own, which has the
// limits and notices when a client hangs up.
#include "server/http.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <poll.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "server/limits.h"

namespace weir_server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

thread_local bool t_is_refused = false;  // this thread has a connection too many

// Marks a request whose body there is no memory for now. Clients that send it themselves are busy, too.
constexpr char kBusyHeader[] = "Weir-Busy";

// For browsers: nothing of the page comes from elsewhere, and nothing is kept.
const std::pair<const char*, const char*> kHeaders[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-store"},
};

int left_of(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

std::atomic<size_t> g_connections{0};
// Bodies that are in memory, of all connections.
std::atomic<size_t> g_body_bytes{0};

class Connection final : public httplib::Stream {
 public:
  Connection(int socket, int client_seconds, const std::atomic<bool>& is_stopping)
      : socket_(socket), client_seconds_(client_seconds), is_stopping_(is_stopping) {
    const int one = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    const int n_bytes = 128 << 10;  // what the system keeps of a client that does not read
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &n_bytes, sizeof(n_bytes));
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  }
  ~Connection() override { free_body(); }

  // Whether a request begins, within the time that a connection may be idle.
  bool wait_for_request() {
    if (at_ < n_) return true;
    const Clock::time_point begun = Clock::now(), end = begun + seconds(kIdleSeconds);
    while (!wait_for(POLLIN, Clock::now() + seconds(1))) {
      const bool is_crowded = g_connections > kMaxConnections / 2 && Clock::now() > begun + seconds(kCrowdedSeconds);
      if (is_crowded || is_stopping_ || is_gone() || Clock::now() > end) return false;
    }
    deadline_ = end;
    return fill() > 0;
  }
  void begin_request() {
    free_body();
    deadline_ = Clock::now() + seconds(kHeaderSeconds);
    allowed_ = kMaxHeaderBytes;
    must_close = false;
  }
  // The head was read; so many bytes of a body may follow. False: there is no memory for them now.
  bool begin_body(size_t n_bytes) {
    deadline_ = Clock::now() + seconds(kBodySeconds);
    allowed_ = n_bytes;
    if (g_body_bytes.fetch_add(n_bytes) + n_bytes > kMaxBodyBytesTogether) {
      g_body_bytes -= n_bytes;
      return false;
    }
    body_bytes_ = n_bytes;
    return true;
  }
  // The body was read; what was allowed beyond its size is there for others.
  void keep_body(size_t n_bytes) {
    if (n_bytes < body_bytes_) g_body_bytes -= std::exchange(body_bytes_, n_bytes) - n_bytes;
  }
  void free_body() { g_body_bytes -= std::exchange(body_bytes_, 0); }
  bool was_too_large() const { return was_too_large_; }

  // The client has closed its side, or the connection is broken.
  bool is_gone() const {
    pollfd p = {socket_, POLLRDHUP, 0};
    return ::poll(&p, 1, 0) > 0;
  }
  bool wait(Signal& signal, int ms) const {
    pollfd p[2] = {{socket_, POLLRDHUP, 0}, {signal.fd(), POLLIN, 0}};
    ::poll(p, 2, ms);
    return p[0].revents == 0;
  }
  // So that the client can read the reply although its request was not read to the end.
  void linger() {
    ::shutdown(socket_, SHUT_WR);
    const Clock::time_point end = Clock::now() + seconds(1);
    char bytes[4096];
    for (size_t n = 0; n < 2 * kMaxBodyBytes && Clock::now() < end;) {
      pollfd p = {socket_, POLLIN, 0};
      if (::poll(&p, 1, left_of(end)) <= 0) return;
      const ssize_t got = ::recv(socket_, bytes, sizeof(bytes), 0);
      if (got <= 0) return;
      n += static_cast<size_t>(got);
    }
  }

  bool must_close = false;

  bool is_readable() const override { return at_ < n_ || !is_gone(); }
  bool is_writable() const override { return !is_gone(); }
  ssize_t read(char* to, size_t size) override {
    if (at_ == n_ && fill() <= 0) return -1;
    size_t n = std::min(size, n_ - at_);
    if (n > allowed_) {
      n = allowed_;
      if (n == 0) {
        was_too_large_ = true;
        return -1;
      }
    }
    std::memcpy(to, bytes_ + at_, n);
    at_ += n;
    allowed_ -= n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* bytes, size_t size) override {
    size_t n = 0;
    while (n < size) {
      const ssize_t sent = ::send(socket_, bytes + n, size - n, MSG_NOSIGNAL);
      if (sent > 0) {
        n += static_cast<size_t>(sent);
        continue;
      }
      if (sent < 0 && errno == EINTR) continue;
      if (sent == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return -1;
      if (!wait_for(POLLOUT, Clock::now() + seconds(client_seconds_))) return -1;
    }
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  ssize_t fill() {
    for (;;) {
      const ssize_t got = ::recv(socket_, bytes_, sizeof(bytes_), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (wait_for(POLLIN, deadline_)) continue;
        return -1;
      }
      at_ = 0;
      n_ = got > 0 ? static_cast<size_t>(got) : 0;
      return got;
    }
  }
  // False: the time is over, the connection is broken, or the server ends and the client has not taken anything for a
  // second.
  bool wait_for(short event, Clock::time_point end) const {
    constexpr milliseconds kSlice{100};
    Clock::time_point last = Clock::now() + seconds(1);
    while (Clock::now() < end) {
      pollfd p = {socket_, event, 0};
      const int n = ::poll(&p, 1, std::min(left_of(end), static_cast<int>(kSlice.count())));
      if (n > 0) return (p.revents & event) != 0;
      if (is_stopping_ && (event == POLLIN || Clock::now() > last)) return false;
    }
    return false;
  }

  int socket_, client_seconds_;
  char bytes_[8192];
  size_t at_ = 0, n_ = 0;
  size_t allowed_ = 0, body_bytes_ = 0;
  bool was_too_large_ = false;
  Clock::time_point deadline_;
  const std::atomic<bool>& is_stopping_;
};

thread_local Connection* t_connection = nullptr;

// One thread for each connection; one too many is told so and closed.
class Threads final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> fn) override {
    if (start(fn)) return;
    t_is_refused = true;
    fn();
    t_is_refused = false;
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [] { return g_connections == 0; });
  }

 private:
  // False: there are too many, or the system gives no thread more.
  bool start(const std::function<void()>& fn) {
    const std::lock_guard lock(mutex_);
    if (g_connections >= kMaxConnections) return false;
    try {
      std::thread([this, fn] {
        fn();
        const std::lock_guard end(mutex_);
        --g_connections;
        ended_.notify_all();
      }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++g_connections;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable ended_;
};

// Compares texts; how long that takes tells nothing of where two of the same length differ.
bool are_equal(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && !b.empty(); ++i)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i % b.size()]));
  return difference == 0;
}

// Whether a text can be a header's name, by RFC 9110, section 5.6.2.
bool is_name(const std::string& text) {
  constexpr char kLetters[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string::npos;
}

// What a Content-Type says without its parameters.
std::string media_type(const std::string& text) {
  const std::string type = text.substr(0, text.find(';'));
  return type.substr(0, type.find_last_not_of(" \t") + 1);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr four = {};
  in6_addr six = {};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
}

std::optional<std::string> HttpRequest::param(const std::string& name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string error_json(int status, const std::string& message, const std::string& param, const std::string& code) {
  const char* const type = status == 404   ? "not_found_error"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  nlohmann::ordered_json error = {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (!code.empty()) error["code"] = code;
  return nlohmann::ordered_json{{"error", error}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(int status, const std::string& message, const std::string& param, const std::string& code) {
  return {status, "application/json", error_json(status, message, param, code)};
}

class HttpServer::Server final : public httplib::Server {
 public:
  Server(const HttpOptions& options, std::function<HttpReply(const HttpRequest&)> handler)
      : options_(options), handler_(std::move(handler)) {
    new_task_queue = [] { return new Threads; };
    httplib::Headers headers;
    for (const auto& [name, value] : kHeaders) headers.emplace(name, value);
    set_default_headers(std::move(headers));
    set_pre_routing_handler([this](const httplib::Request& req, httplib::Response& res) { return before(req, res); });
    set_expect_100_continue_handler([this](const httplib::Request& req, httplib::Response& res) {
      const HttpReply wrong = wrong_with(req);
      if (wrong.status == 200) return 100;
      t_connection->must_close = true;
      set(res, wrong);
      return wrong.status;
    });
    Post(".*", [this](const httplib::Request& req, httplib::Response& res) { answer(req, res); });
    set_error_handler([](const httplib::Request&, httplib::Response& res) {
      if (!res.body.empty()) return;
      const bool too_large = t_connection != nullptr && t_connection->was_too_large();
      if (too_large) res.status = 413;
      t_connection->must_close = true;
      res.set_content(error_json(res.status, too_large           ? "the request is too large"
                                             : res.status == 414 ? "the address is too long"
                                             : res.status == 413 ? "the body is larger than 8 MiB"
                                                                 : "this is not HTTP as it should be"),
                      "application/json");
    });
    set_exception_handler([](const httplib::Request&, httplib::Response& res, std::exception_ptr) {
      res.status = 500;
      res.set_content(error_json(500, "the server failed"), "application/json");
    });
    // No other program may listen at the same port, as cpp-httplib would let it.
    set_socket_options([](socket_t socket) {
      const int one = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    });
    set_payload_max_length(kMaxBodyBytes);
    set_keep_alive_timeout(kIdleSeconds);
    set_keep_alive_max_count(kMaxRequestsOfConnection);
  }

  int bind() {
    is_loopback_ = is_loopback(options_.host);
    is_any_ = options_.host == "0.0.0.0" || options_.host == "::";
    port_ = options_.port;
    if (options_.port == 0)
      port_ = bind_to_any_port(options_.host);
    else if (!bind_to_port(options_.host, options_.port))
      port_ = -1;
    if (port_ < 0) {
      throw std::runtime_error("cannot listen on " + options_.host + " port " + std::to_string(options_.port) + ": " +
                               std::strerror(errno) + "; --port 0 takes any that is free");
    }
    ::listen(svr_sock_, 128);
    return port_;
  }
  void end() {
    is_stopping_ = true;
    if (svr_sock_ != INVALID_SOCKET) stop();  // the base class takes a second call amiss
  }
  std::atomic<bool> is_stopping_{false};

 private:
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, options_.client_seconds, is_stopping_);
    t_connection = &connection;
    if (t_is_refused) {
      const std::string body = error_json(503, "too many connections");
      const std::string text =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
          "Retry-After: 1\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\n\r\n" + body;
      (void)::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(socket, SHUT_RDWR);
      ::close(socket);
      return true;
    }
    for (size_t n = 1; n <= kMaxRequestsOfConnection && connection.wait_for_request(); ++n) {
      connection.begin_request();
      bool is_closed = false;
      const bool is_last = n == kMaxRequestsOfConnection || is_stopping_;
      const bool is_good =
          process_request(connection, is_last, is_closed, [&](httplib::Request& req) { prepare(connection, req); });
      connection.free_body();
      if (!is_good || is_closed || connection.must_close) break;
    }
    t_connection = nullptr;
    connection.linger();
    ::close(socket);
    return true;
  }

  // When the head was read and nothing of it was looked at.
  static void prepare(Connection& connection, httplib::Request& req) {
    // Replies are neither compressed nor cut.
    req.headers.erase("Accept-Encoding");
    req.headers.erase("Range");
    req.ranges.clear();
    // By RFC 9112, section 6.3, there is no body then; cpp-httplib would read one until the connection ends.
    if (!req.has_header("Content-Length") && !req.has_header("Transfer-Encoding")) {
      if (req.method == "POST") req.set_header("Content-Length", "0");
    }
    const std::string length = req.get_header_value("Content-Length");
    size_t n_bytes = 0;
    const bool is_chunked = lower(req.get_header_value("Transfer-Encoding")) == "chunked";
    constexpr size_t kMax = kMaxBodyBytes + kMaxHeaderBytes;  // with what stands between the chunks
    if (is_chunked) n_bytes = kMax;
    for (const char c : length)  // what is no number, or too large, is refused by wrong_with()
      n_bytes = c >= '0' && c <= '9' && n_bytes <= kMax ? 10 * n_bytes + static_cast<size_t>(c - '0') : kMax + 1;
    if (n_bytes <= kMax && !connection.begin_body(n_bytes)) req.set_header(kBusyHeader, "1");
  }

  // What is wrong with the head of a request; status 200: nothing.
  HttpReply wrong_with(const httplib::Request& req) const {
    if (req.target.size() > kMaxPathBytes) return error_reply(414, "the address is too long");
    // What a proxy in front may have understood in another way.
    for (const auto& [name, value] : req.headers) {
      if (!is_name(name)) return error_reply(400, "a header has a name with other than letters, digits and signs");
    }
    for (const char* const name : {"Host", "Origin", "Authorization", "Transfer-Encoding"}) {
      if (req.get_header_value_count(name) > 1) return error_reply(400, std::string("there are two headers ") + name);
    }
    const std::string host = lower(req.get_header_value("Host"));
    if (!is_known(host)) return error_reply(403, "the Host header does not name this server");
    if (req.has_header("Origin") && lower(req.get_header_value("Origin")) != "http://" + host)
      return error_reply(403, "pages of other origins may not ask this server");
    // A link to the page is followed; a request that another page makes is not.
    const bool is_link = lower(req.get_header_value("Sec-Fetch-Mode")) == "navigate" && req.method == "GET";
    if (lower(req.get_header_value("Sec-Fetch-Site")) == "cross-site" && (!is_link || req.path.starts_with("/v1")))
      return error_reply(403, "pages of other sites may not ask this server");
    if (!options_.token.empty() && req.path.starts_with("/v1")) {
      const std::string given = req.get_header_value("Authorization"), scheme = "bearer ";
      if (lower(given.substr(0, scheme.size())) != scheme || !are_equal(given.substr(scheme.size()), options_.token)) {
        HttpReply reply =
            error_reply(401, "this server wants a token: Authorization: Bearer TOKEN", "", "invalid_api_key");
        reply.headers.push_back({"WWW-Authenticate", "Bearer"});
        return reply;
      }
    }
    if (req.has_header("Content-Encoding") && lower(req.get_header_value("Content-Encoding")) != "identity")
      return error_reply(415, "compressed bodies are not taken");
    if (req.get_header_value_count("Content-Length") > 1 ||
        (req.has_header("Transfer-Encoding") &&
         (req.has_header("Content-Length") || lower(req.get_header_value("Transfer-Encoding")) != "chunked")))
      return error_reply(400, "the length of the body is not clear");
    const std::string length = req.get_header_value("Content-Length");
    if (length.find_first_not_of("0123456789") != std::string::npos)
      return error_reply(400, "Content-Length is not a number");
    if (length.size() > 18 || (!length.empty() && std::stoull(length) > kMaxBodyBytes))
      return error_reply(413, "the body is larger than 8 MiB");
    // What a form of another page can send is none of it.
    const bool has_body = req.has_header("Transfer-Encoding") || length.find_first_not_of('0') != std::string::npos;
    const std::string type = media_type(req.get_header_value("Content-Type"));
    if (req.method == "POST" && has_body && lower(type) != "application/json") {
      return error_reply(415, (type.empty() ? std::string("the body has no Content-Type")
                                            : "the body's Content-Type is " + type.substr(0, 100)) +
                                  "; it has to be JSON with the header Content-Type: application/json");
    }
    if (req.has_header(kBusyHeader)) return error_reply(503, "too many large requests at a time");
    return {};
  }
  // Other names may have been made to mean this machine by a page that wants to reach it.
  bool is_known(const std::string& host) const {
    if (is_any_) return !host.empty();
    const std::string port = ":" + std::to_string(port_);
    const auto is = [&](const std::string& name) { return host == name + port || (port_ == 80 && host == name); };
    if (is(options_.host.find(':') != std::string::npos ? "[" + options_.host + "]" : lower(options_.host)))
      return true;
    return is_loopback_ && (is("localhost") || is("127.0.0.1") || is("[::1]"));
  }

  HandlerResponse before(const httplib::Request& req, httplib::Response& res) {
    const HttpReply wrong = wrong_with(req);
    if (wrong.status != 200) {
      t_connection->must_close = true;
      set(res, wrong);
      return HandlerResponse::Handled;
    }
    if (req.method == "POST") return HandlerResponse::Unhandled;  // its body is read first
    if (req.method != "GET" && req.method != "HEAD" && req.method != "DELETE") {
      t_connection->must_close = true;
      set(res, error_reply(405, "this method is not known here"));
      return HandlerResponse::Handled;
    }
    if (req.has_header("Content-Length") || req.has_header("Transfer-Encoding")) t_connection->must_close = true;
    answer(req, res);
    return HandlerResponse::Handled;
  }

  void answer(const httplib::Request& req, httplib::Response& res) {
    HttpRequest request;
    request.method = req.method == "HEAD" ? "GET" : req.method;
    request.path = req.path;
    for (const auto& [key, value] : req.params) request.query.emplace_back(key, value);
    request.body = req.body;
    Connection& connection = *t_connection;
    connection.keep_body(request.body.size());
    request.wait = [&connection](Signal& signal, int ms) { return connection.wait(signal, ms); };
    try {
      set(res, handler_(request));
    } catch (const std::exception& e) {
      set(res, error_reply(500, e.what()));
    }
  }

  void set(httplib::Response& res, const HttpReply& reply) const {
    res.status = reply.status;
    for (const auto& [name, value] : reply.headers) res.set_header(name, value);
    if (!reply.more) {
      res.set_content(reply.body, reply.type);
      return;
    }
    Connection& connection = *t_connection;
    res.set_chunked_content_provider(reply.type, [more = reply.more, &connection](size_t, httplib::DataSink& sink) {
      std::string text;
      bool goes_on = false;
      try {
        goes_on = more(text);
      } catch (const std::exception& e) {
        text += "data: " + error_json(500, e.what()) + "\n\n";
      }
      if (!text.empty() && !sink.write(text.data(), text.size())) return false;
      if (!goes_on) sink.done();
      return !connection.is_gone();
    });
  }

  const HttpOptions options_;
  const std::function<HttpReply(const HttpRequest&)> handler_;
  int port_ = 0;
  bool is_loopback_ = false, is_any_ = false;
};

HttpServer::HttpServer(const HttpOptions& options, std::function<HttpReply(const HttpRequest&)> handler)
    : server_(std::make_unique<Server>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;
int HttpServer::bind() { return server_->bind(); }
bool HttpServer::run() { return server_->listen_after_bind(); }
void HttpServer::stop() { server_->end(); }

}  // namespace weir_server
