#include "serve/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "serve/answers.h"
#include "serve/api_error.h"
#include "serve/chat_answer.h"
#include "serve/completions.h"
#include "serve/connection.h"
#include "serve/cors.h"
#include "serve/gauges.h"
#include "serve/messages.h"
#include "serve/openai.h"
#include "serve/page.h"
#include "serve/responses.h"
#include "serve/tokens.h"
#include "serve/worker.h"
#include "sys/error.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

// As long for a wrong key as for the right one.
bool equal(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\1' : b[i % b.size()]));
  return difference == 0;
}

void set_json(httplib::Response& response, const ordered_json& json, int status = 200) {
  response.status = status;
  response.set_content(dump(json), "application/json");
}

// Of the surfaces' common requests (models) those of Anthropic's clients have this header.
bool is_anthropic(const httplib::Request& request) {
  return request.path.starts_with("/v1/messages") || request.has_header("anthropic-version");
}

// In the form of the surface that was asked.
void set_error(const httplib::Request& request, httplib::Response& response, int status, const char* type,
               const std::string& message, const std::string& param = "", const char* code = "",
               const ordered_json& more = nullptr) {
  const bool anthropic = is_anthropic(request);
  ordered_json error = anthropic ? messages_error_json(status, message) : error_json(type, message, param, code);
  if (!anthropic && !more.is_null()) error["error"].update(more);
  set_json(response, error, status);
}

void check(const Outcome& outcome) {
  if (outcome.error == kStopping) throw ApiError(503, "unavailable_error", outcome.error);
  if (!outcome.error.empty()) throw ApiError(500, "server_error", outcome.error);
}

// The chat page. It holds nothing but the program's own files, and may load nothing else.
void add_page(httplib::Server& http) {
  for (const PageFile& file : page_files()) {
    http.Get(file.path, [file](const httplib::Request& q, httplib::Response& r) {
      r.set_header("Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                   "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                   "require-trusted-types-for 'script'; trusted-types 'none'");
      r.set_header("X-Content-Type-Options", "nosniff");
      r.set_header("Referrer-Policy", "no-referrer");
      r.set_header("Cache-Control", "no-cache");
      r.set_header("ETag", file.etag);
      if (q.get_header_value("If-None-Match") == file.etag)
        r.status = 304;
      else
        r.set_content(file.bytes.data(), file.bytes.size(), file.type);
    });
  }
}

bool is_public(const std::string& path) {
  return path == "/health" || std::ranges::any_of(page_files(), [&](const PageFile& f) { return path == f.path; });
}

// Of the request that this thread handles.
RequestRecord& record() { return Connection::current()->record(); }

// For a whole answer, whose client may leave meanwhile: the answer is then not wanted either.
std::vector<Answers::Update> wait_for_more(Answers& answers) {
  Connection* connection = Connection::current();
  if (connection && connection->gone()) throw ApiError(499, "client_closed_request", "the client has left");
  return answers.wait(200ms);
}

// Parsed JSON takes many times the bytes of its text.
std::mutex& large_bodies() {
  static std::mutex mutex;
  return mutex;
}
template <class Read>
auto one_large_at_a_time(const std::string& body, const Read& read) {
  std::unique_lock lock(large_bodies(), std::defer_lock);
  if (body.size() > size_t{1} << 20) lock.lock();
  return read();
}

// Waits for whole answers.
std::vector<Said> wait_for(Answers& answers) {
  std::vector<Said> said(answers.size());
  while (!answers.done()) {
    for (const auto& [i, news] : wait_for_more(answers)) {
      said[i].reasoning += news.text.reasoning;
      said[i].content += news.text.content;
      if (news.done) check(answers.outcome(i));
    }
  }
  return said;
}

}  // namespace

// Counts the requests that are being answered.
class Active {
 public:
  explicit Active(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
  ~Active() { --count_; }

 private:
  std::atomic<int64_t>& count_;
};

// What the bodies of all connections take together.
class BodyBytes {
 public:
  explicit BodyBytes(std::atomic<int64_t>& all) : all_(all) {}
  BodyBytes(const BodyBytes&) = delete;
  BodyBytes& operator=(const BodyBytes&) = delete;
  ~BodyBytes() { all_ -= own_; }
  bool take(size_t bytes) {
    own_ += static_cast<int64_t>(bytes);
    return (all_ += static_cast<int64_t>(bytes)) <= kBodiesMax;
  }

 private:
  std::atomic<int64_t>& all_;
  int64_t own_ = 0;
};

struct Server::State {
  // What there is once the model is loaded.
  struct Loaded {
    engine::LanguageModel& model;
    Defaults defaults;
    Worker worker;
    std::time_t since = std::time(nullptr);
  };

  ServerOptions options;
  HttpServer http;
  int port = 0;
  std::unique_ptr<Loaded> owner;
  std::atomic<Loaded*> loaded = nullptr;
  std::thread listening;
  std::atomic<int64_t> active = 0;  // requests that are being answered, or wait
  std::atomic<int64_t> body_bytes = 0;
  std::atomic<bool> draining = false;          // no others are accepted
  std::atomic<bool> listens = true;            // the thread that accepts connections has not ended
  std::map<std::string, const char*> allowed;  // the method of each path
  std::mutex noted_mutex;
  std::set<std::string> noted;  // types of tools that were skipped

  void set_routes();
  void listen();
  void post(const std::string& path, void (State::*answer)(const std::string& body, httplib::Response&));
  void get(const std::string& path, void (State::*answer)(httplib::Response&));
  bool has_key(const httplib::Request& request) const;
  bool refused(const httplib::Request& request, httplib::Response& response);
  Loaded& ready();
  std::unique_ptr<Active> admitted();
  void chat(const std::string& body, httplib::Response& response);
  void completions(const std::string& body, httplib::Response& response);
  void responses(const std::string& body, httplib::Response& response);
  void messages(const std::string& body, httplib::Response& response);
  void count_tokens(const std::string& body, httplib::Response& response);
  void blocks(std::unique_ptr<Active> place, const Asked& asked, std::unique_ptr<BlockStream> form,
              httplib::Response& response);
  void note_skipped(const Asked& asked);
  void stream(std::unique_ptr<Active> held, std::vector<Asked> asked, std::unique_ptr<AnswerStream> form,
              httplib::Response& response);
  void explain(const httplib::Request& request, httplib::Response& response);
  ordered_json model_json();
  ordered_json model_json_of(const httplib::Request& request);
  void models(const httplib::Request& request, httplib::Response& response);
  void health(httplib::Response& response);
  void save_cache(const std::string& body, httplib::Response& response);
  void tokenize(const std::string& body, httplib::Response& response);
  void detokenize(const std::string& body, httplib::Response& response);
  void metrics(httplib::Response& response);
  void state(httplib::Response& response);
};

Server::State::Loaded& Server::State::ready() {
  Loaded* now = loaded;
  if (!now) throw ApiError(503, "unavailable_error", "the model is being loaded");
  return *now;
}

// A place among the requests that are answered, or wait.
std::unique_ptr<Active> Server::State::admitted() {
  auto place = std::make_unique<Active>(active);
  (void)ready();
  if (draining) throw ApiError(503, "unavailable_error", kStopping);
  const int64_t most = options.parallel + options.queue;
  if (active > most)
    throw ApiError(429, "rate_limit_error", fmt::format("{} requests wait already; try again later", options.queue), "",
                   "rate_limit_exceeded");
  return place;
}

// The name in a Host header, without its port: an address, localhost, or what the server listens to.
bool is_own_name(const std::string& host, const std::string& listening) {
  if (host.starts_with('[')) return true;  // an IPv6 address
  const std::string name = host.substr(0, host.find(':'));
  const bool address = name.find_first_not_of("0123456789.") == name.npos;
  return address || name == "localhost" || name.ends_with(".localhost") || name == listening;
}

// A length that is not one number, or two ways to tell it, could hide another request in the body.
const char* wrong_length(const httplib::Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length"),
               codings = request.get_header_value_count("Transfer-Encoding");
  const std::string length = request.get_header_value("Content-Length");
  if (lengths > 1 || codings > 1 || (lengths > 0 && codings > 0)) return "the length of the body is given twice";
  if (lengths > 0 && (length.empty() || length.size() > 18 || length.find_first_not_of("0123456789") != length.npos))
    return "Content-Length is not a number";
  if (codings > 0 && request.get_header_value("Transfer-Encoding") != "chunked")
    return "Transfer-Encoding is not available here, except as chunked";
  return nullptr;
}

struct Refusal {
  int status = 0;
  std::string why{};
};
// Of a body that is not read, or not as it is sent: the next request would be looked for inside it.
std::optional<Refusal> refusal_of_body(const httplib::Request& request) {
  if (const char* wrong = wrong_length(request)) return Refusal{400, wrong};
  const std::string length = request.get_header_value("Content-Length");
  const bool chunked = request.has_header("Transfer-Encoding"), none = length.find_first_not_of('0') == length.npos;
  if (request.method != "POST") {
    if (none && !chunked) return std::nullopt;
    return Refusal{400, "a body is not available with " + printable(request.method)};
  }
  if (length.empty() && !chunked) return Refusal{411, "the length of the body is not given"};
  const std::string coding = request.get_header_value("Content-Encoding");
  if (!coding.empty() && coding != "identity")  // read, it could be far larger than it is sent
    return Refusal{415, "a body in the coding " + printable(coding) + " is not available here: send it as it is"};
  // The library ends these where their last boundary is, whatever the length says.
  const std::string type = request.get_header_value("Content-Type");
  constexpr std::string_view kParts = "multipart/";
  if (strncasecmp(type.c_str(), kParts.data(), kParts.size()) == 0)
    return Refusal{415, "a body of the type " + printable(type, 60) + " is not available here: send JSON"};
  return std::nullopt;
}

// As a bearer token or as x-api-key: a client may have something else in the other.
bool Server::State::has_key(const httplib::Request& request) const {
  constexpr size_t kBearer = 7;  // "Bearer ", in any case
  const std::string authorization = request.get_header_value("Authorization");
  const bool bearer = authorization.size() > kBearer && strncasecmp(authorization.c_str(), "Bearer ", kBearer) == 0;
  const bool first = equal(bearer ? authorization.substr(kBearer) : "", options.key),
             second = equal(request.get_header_value("x-api-key"), options.key);
  return first || second;
}

// Before the body is read, which then stays unread. Health is public, and the page, which has a field for the key.
bool Server::State::refused(const httplib::Request& request, httplib::Response& response) {
  Connection* connection = Connection::current();
  connection->set_interim(request.version == "HTTP/1.1");
  const_cast<httplib::Request&>(request).ranges.clear();  // or the library cuts answers up
  if (const auto refusal = refusal_of_body(request)) {
    connection->close_after_this();
    response.set_header("Connection", "close");
    set_error(request, response, refusal->status, "invalid_request_error", refusal->why);
    return true;
  }
  if (request.method == "POST") connection->expect_body();
  if (request.has_header("Transfer-Encoding")) connection->expect_chunks();
  // The library would read all of it, only to discard it.
  if (request.get_header_value<uint64_t>("Content-Length") > kBodyMax) {
    connection->close_after_this();
    response.set_header("Connection", "close");
    response.status = 413;
    explain(request, response);
    return true;
  }
  // A page of another origin, or one whose name was made to point here, must not use what needs no key.
  const std::string origin = request.get_header_value("Origin"), asked = request.get_header_value("Host");
  const bool own_page = origin == "http://" + asked || origin == "https://" + asked;  // also behind a proxy with TLS
  const bool allowed_page = !origin.empty() && allows_origin(options.origins, origin);
  if (allowed_page) set_cors_headers(request, response);
  if (allowed_page && is_preflight(request)) {  // has no key
    response.status = 204;
    return true;
  }
  if (!origin.empty() && !own_page && !allowed_page) {
    connection->close_after_this();
    set_error(request, response, 403, "permission_error",
              "a page of another origin, " + printable(origin) + ", cannot use this server without --cors");
    return true;
  }
  if (options.key.empty() && !is_own_name(asked, options.host)) {
    connection->close_after_this();
    set_error(request, response, 403, "permission_error",
              "the host name " + printable(asked) +
                  " is not this machine's own: use 127.0.0.1 or localhost, or start the server with --api-key");
    return true;
  }
  if (options.key.empty() || is_public(request.path)) return false;
  if (has_key(request)) return false;
  connection->close_after_this();
  set_error(request, response, 401, "authentication_error", "the API key is missing or wrong", "", "invalid_api_key");
  return true;
}

// The answers of a stream, and what was written of them.
struct Streaming {
  std::unique_ptr<Active> place;
  std::vector<Asked> asked;
  std::unique_ptr<AnswerStream> form;
  Answers answers;
  std::chrono::milliseconds silence_max;
  bool begun = false;
  std::chrono::steady_clock::time_point wrote = std::chrono::steady_clock::now();
  Streaming(Worker& worker, std::unique_ptr<Active> active, std::vector<Asked> all,
            std::unique_ptr<AnswerStream> written, std::chrono::milliseconds silence)
      : place(std::move(active)),
        asked(std::move(all)),
        form(std::move(written)),
        answers(worker, asked, record()),
        silence_max(silence) {}

  std::string next() {
    std::string out = std::exchange(begun, true) ? "" : form->begin();
    if (!out.empty()) {  // at once, also while the answers wait for their turn
      wrote = std::chrono::steady_clock::now();
      return out;
    }
    // News may hold nothing to show yet: what counts is when something was written.
    const auto silent = [&] {
      return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - wrote);
    };
    constexpr auto kLook = 500ms;  // for a client that has left
    const auto updates = answers.wait(std::clamp(silence_max - silent(), 0ms, kLook));
    for (const auto& [i, news] : updates) {
      out += told(*form, i, news, answers.outcome(i));
      failed = news.done && !answers.outcome(i).error.empty();
      if (failed) return out;
    }
    if (answers.done()) return out + form->finish(answers.outcomes());
    // A client that has closed its end may still read. Whether it does, this shows: it is answered by a reset if not.
    const bool probes = !probed && Connection::current()->ended();
    if (out.empty() && (silent() >= silence_max || probes)) out = ": still here\n\n";
    probed = probed || probes;
    if (!out.empty()) wrote = std::chrono::steady_clock::now();
    return out;
  }
  // The client still gets an event that says why there are no more.
  std::string next_or_error() {
    try {
      return next();
    } catch (const std::exception& e) {
      failed = true;
      return form->fail(500, "server_error", printable(e.what()));
    }
  }
  bool failed = false, probed = false;
};

void Server::State::stream(std::unique_ptr<Active> held, std::vector<Asked> asked, std::unique_ptr<AnswerStream> form,
                           httplib::Response& response) {
  auto s = std::make_shared<Streaming>(ready().worker, std::move(held), std::move(asked), std::move(form),
                                       options.silence_max);
  const auto next = [s](size_t, httplib::DataSink& sink) {
    if (Connection::current()->lost()) return false;
    const std::string text = s->next_or_error();
    if (!text.empty() && !sink.write(text.data(), text.size())) return false;
    if (s->failed || s->answers.done()) sink.done();
    return true;
  };
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider("text/event-stream", next);
}

void Server::State::chat(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  auto place = admitted();
  std::vector<Asked> asked{one_large_at_a_time(body, [&] { return read_chat(body, now.model, now.defaults); })};
  note_skipped(asked[0]);
  if (asked[0].stream) return stream(std::move(place), asked, chat_stream(asked[0], now.model), response);
  Answers answers(now.worker, asked, record());
  const std::vector<Said> said = wait_for(answers);
  set_json(response, chat_json(asked[0], said, answers.outcomes(), now.model));
}

// Responses and Messages: a whole answer is the end of a stream that nobody reads.
void Server::State::blocks(std::unique_ptr<Active> place, const Asked& asked, std::unique_ptr<BlockStream> form,
                           httplib::Response& response) {
  note_skipped(asked);
  std::vector<Asked> one{asked};
  if (asked.stream) return stream(std::move(place), std::move(one), std::move(form), response);
  Answers answers(ready().worker, one, record());
  while (!answers.done()) {
    for (const auto& [i, news] : wait_for_more(answers)) {
      if (news.done) check(answers.outcome(i));
      (void)form->news(i, news);
      if (news.done) (void)form->end(i, answers.outcome(i));
    }
  }
  set_json(response, form->whole(answers.outcomes()));
}

void Server::State::responses(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  auto place = admitted();
  ResponsesRequest request = one_large_at_a_time(body, [&] { return read_responses(body, now.model, now.defaults); });
  const Asked asked = request.asked;
  blocks(std::move(place), asked, responses_stream(std::move(request), now.model), response);
}

void Server::State::messages(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  auto place = admitted();
  const Asked asked = one_large_at_a_time(body, [&] { return read_messages(body, now.model, now.defaults); });
  blocks(std::move(place), asked, messages_stream(asked), response);
}

void Server::State::count_tokens(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  const Asked asked = one_large_at_a_time(body, [&] { return read_messages(body, now.model, now.defaults, false); });
  set_json(response, {{"input_tokens", asked.work.request.prompt.size()}});
}

void Server::State::note_skipped(const Asked& asked) {
  const std::lock_guard lock(noted_mutex);
  for (const std::string& type : asked.skipped_tools) {
    if (options.log && noted.size() < 100 && noted.insert(type).second)
      options.log("tools of type " + printable(type) + " are skipped: only functions are available");
  }
}

void Server::State::completions(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  auto place = admitted();
  const std::vector<Asked> asked =
      one_large_at_a_time(body, [&] { return read_completions(body, now.model, now.defaults); });
  if (asked[0].stream) return stream(std::move(place), asked, completions_stream(asked, now.model), response);
  Answers answers(now.worker, asked, record());
  const std::vector<Said> said = wait_for(answers);
  set_json(response, completions_json(asked, said, answers.outcomes(), now.model));
}

ordered_json Server::State::model_json() {
  const Loaded& now = ready();
  return {{"id", now.defaults.model},
          {"object", "model"},
          {"created", now.since},
          {"owned_by", "braid"},
          {"max_model_len", now.model.runner().options().context}};
}

// In the form of the client that asks.
ordered_json Server::State::model_json_of(const httplib::Request& request) {
  if (!is_anthropic(request)) return model_json();
  const Loaded& now = ready();
  std::tm utc{};
  gmtime_r(&now.since, &utc);
  char created[32] = "";
  (void)std::strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const std::string& name = now.defaults.model;
  return {{"type", "model"},       {"id", name},
          {"display_name", name},  {"created_at", created},
          {"lifecycle", "active"}, {"max_input_tokens", now.model.runner().options().context}};
}

void Server::State::models(const httplib::Request& request, httplib::Response& response) {
  ordered_json out = {{"data", ordered_json::array({model_json_of(request)})}};
  const std::string& name = ready().defaults.model;
  if (is_anthropic(request))
    out.update({{"has_more", false}, {"first_id", name}, {"last_id", name}});
  else
    out["object"] = "list";
  set_json(response, out);
}

void Server::State::save_cache(const std::string&, httplib::Response& response) {
  if (options.cache_file.empty()) refuse("the server has no --cache-file");
  ready().worker.save_cache();
  set_json(response, {{"saved", options.cache_file}});
}

void Server::State::tokenize(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  set_json(response, one_large_at_a_time(body, [&] { return tokens_json(body, now.model, now.defaults); }));
}

void Server::State::detokenize(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  set_json(response, one_large_at_a_time(body, [&] { return text_json(body, now.model); }));
}

void Server::State::metrics(httplib::Response& response) {
  const Loaded& now = ready();
  response.set_content(prometheus_text(now.worker.counters(), now.defaults.model), "text/plain; version=0.0.4");
}

void Server::State::state(httplib::Response& response) {
  const Loaded& now = ready();
  ordered_json out = {{"status", draining ? "stopping" : "ok"},
                      {"model", now.defaults.model},
                      {"context", now.model.runner().options().context},
                      {"parallel", options.parallel},
                      {"queue", options.queue},
                      {"snapshots", now.model.runner().options().snapshots == DType::i8 ? "int8" : "f32"},
                      {"since", now.since}};
  out.update(state_json(now.worker.counters()));
  set_json(response, out);
}

void Server::State::health(httplib::Response& response) {
  (void)ready();
  if (draining) throw ApiError(503, "unavailable_error", kStopping);
  set_json(response, {{"status", "ok"}});
}

// The library reads bodies of forms, which is what curl -d sends without a type, up to 8 KiB only; read here they have
// the limit of all others.
void Server::State::post(const std::string& path, void (State::*answer)(const std::string& body, httplib::Response&)) {
  allowed[path] = "POST";
  http.Post(path, [this, answer](const httplib::Request&, httplib::Response& r, const httplib::ContentReader& read) {
    std::string body;
    BodyBytes bytes(body_bytes);
    bool room = true, large = false;
    const bool whole = read([&](const char* data, size_t size) {
      room = bytes.take(size);
      large = body.size() + size > kBodyMax;
      if (!room || large) return false;
      body.append(data, size);
      return true;
    });
    Connection& connection = *Connection::current();
    large = large || connection.closing();  // that limits bytes, too
    if (whole)
      connection.take_body();
    else
      connection.close_after_this();
    if (!room) throw ApiError(503, "unavailable_error", "too many large requests at once; try again later");
    if (!whole && large)
      throw ApiError(413, "invalid_request_error", fmt::format("the body is larger than {} bytes", kBodyMax));
    if (!whole) refuse("the body is not whole: it ends too early, or a chunk has no size or another one");
    (this->*answer)(body, r);
  });
}

void Server::State::get(const std::string& path, void (State::*answer)(httplib::Response&)) {
  allowed[path] = "GET";
  http.Get(path, [this, answer](const httplib::Request&, httplib::Response& r) { (this->*answer)(r); });
}

// What the library refused by itself.
void Server::State::explain(const httplib::Request& request, httplib::Response& response) {
  if (!response.body.empty()) return;
  const auto known = allowed.find(request.path);
  if (response.status == 404 && known != allowed.end()) {
    response.status = 405;
    response.set_header("Allow", known->second);
  }
  const std::string asked = printable(request.method + " " + request.path);
  switch (response.status) {
    case 404:
      return set_error(request, response, 404, "not_found_error",
                       "no such request: " + asked + "; docs/serve.md lists what there is");
    case 405:
      return set_error(request, response, 405, "invalid_request_error",
                       fmt::format("{}; expected {}", asked, known->second));
    case 413:
      return set_error(request, response, 413, "invalid_request_error",
                       fmt::format("the body is larger than {} bytes", kBodyMax));
    case 414:
      return set_error(request, response, 414, "invalid_request_error", "the path is too long");
    default:
      set_error(request, response, response.status, "invalid_request_error",
                "not a request that HTTP/1.1 allows, or its headers are too long");
  }
}

void Server::State::set_routes() {
  using Request = httplib::Request;
  using Response = httplib::Response;
  for (const std::string version : {"/v1", ""}) {  // some clients are given the address without it
    post(version + "/chat/completions", &State::chat);
    post(version + "/completions", &State::completions);
    post(version + "/responses", &State::responses);
    allowed[version + "/models"] = "GET";
    http.Get(version + "/models", [this](const Request& q, Response& r) { models(q, r); });
  }
  post("/cache/save", &State::save_cache);
  post("/v1/messages", &State::messages);
  post("/v1/messages/count_tokens", &State::count_tokens);
  post("/tokenize", &State::tokenize);
  post("/detokenize", &State::detokenize);
  get("/metrics", &State::metrics);
  get("/state", &State::state);
  get("/health", &State::health);
  add_page(http);
  http.Get("/v1/models/(.+)", [this](const Request& q, Response& r) {
    if (q.matches[1] != ready().defaults.model)
      throw ApiError(404, "not_found_error", "no such model: " + printable(q.matches[1].str()));
    set_json(r, model_json_of(q));
  });
  http.set_pre_routing_handler([this](const Request& q, Response& r) {
    return refused(q, r) ? httplib::Server::HandlerResponse::Handled : httplib::Server::HandlerResponse::Unhandled;
  });
  http.set_exception_handler([](const Request& q, Response& r, const std::exception_ptr& thrown) {
    if (Connection* connection = Connection::current(); connection->expects_body()) {
      connection->close_after_this();
      r.set_header("Connection", "close");
    }
    try {
      std::rethrow_exception(thrown);
    } catch (const ApiError& e) {
      if (e.status() == 429) r.set_header("Retry-After", "1");
      ordered_json more;
      if (e.context() > 0) more = {{"n_prompt_tokens", e.prompt_tokens()}, {"n_ctx", e.context()}};
      set_error(q, r, e.status(), e.type(), e.what(), e.param(), e.code(), more);
    } catch (const Error& e) {  // what the template or the tokenizer refuses
      const bool theirs = e.fault() == Fault::bad_input;
      set_error(q, r, theirs ? 400 : 500, theirs ? "invalid_request_error" : "server_error", e.what());
    } catch (const std::exception& e) {
      set_error(q, r, 500, "server_error", printable(e.what()));
    }
  });
  if (options.requests) {
    http.set_logger([this](const Request& q, const Response& r) {
      Connection* connection = Connection::current();
      options.requests(log_line(connection->record(), connection->peer(), q.method, q.path, r.status));
    });
  }
  http.set_error_handler([this](const Request& q, Response& r) { explain(q, r); });
}

// The library takes any error of accept but EMFILE for the end, also those that one client's connection had.
void Server::State::listen() {
  while (true) {
    http.let_many_wait();
    if (http.listen_after_bind() || draining) break;
    if (options.log) options.log("the socket failed that accepts connections; listening again");
    while (!draining && !http.bind_to_port(options.host, port)) std::this_thread::sleep_for(100ms);
    if (draining) break;
  }
  listens = false;
}

Server::Server(ServerOptions options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = std::move(options);
  s.set_routes();
  s.http.set_payload_max_length(kBodyMax);
  s.http.set_read_timeout(30s);
  s.http.set_write_timeout(30s);
  s.http.set_tcp_nodelay(true);
  // A thread for every connection: each waits for its answer, and those that are queued must not keep /health from it.
  s.http.set_threads(static_cast<size_t>(s.options.queue + s.options.parallel + 32));
  // The library's own options let two servers share a port.
  s.http.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const std::string& host = s.options.host;
  s.port = s.options.port == 0                         ? s.http.bind_to_any_port(host)
           : s.http.bind_to_port(host, s.options.port) ? s.options.port
                                                       : -1;
  if (s.port < 0)
    fail_environment("serve", {.what = "cannot listen: " + why_not_listening(host, s.options.port),
                               .got = fmt::format("{}:{}", printable(host), s.options.port),
                               .hint = "another --port, or an address of this machine"});
  s.listening = std::thread([&s] { s.listen(); });
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

int Server::port() const { return state_->port; }
int64_t Server::active() const { return state_->active; }

std::vector<std::string> Server::load(engine::LanguageModel& model, Defaults defaults, engine::DraftOptions drafts) {
  // Both are read when first asked for, and from here on by several threads.
  (void)model.tokenizer();
  (void)model.grammars();
  std::vector<std::string> notes;
  try {
    (void)model.render({{{"role", "user"}, {"content", "Hello"}}}, {});
  } catch (const Error& e) {  // no template, or one that needs more
    notes.push_back(fmt::format("chats may be refused: {}", e.what()));
  }
  State& s = *state_;
  s.owner.reset(new State::Loaded{model, std::move(defaults), Worker(model, s.options.cache_file, std::move(drafts))});
  s.loaded = s.owner.get();
  if (const std::string why = s.owner->worker.ignored(); !why.empty())
    notes.push_back("the file of cached prefixes is ignored: " + why);
  return notes;
}

// What is running may end by itself for as long as `grace`; streams that remain end with the error kStopping.
void Server::stop(std::chrono::milliseconds grace) {
  State& s = *state_;
  if (!s.listening.joinable()) return;
  s.draining = true;
  const auto wait_until_idle = [&s](std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (s.active > 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
  };
  wait_until_idle(grace);
  if (s.owner) s.owner->worker.stop();
  wait_until_idle(state_->options.silence_max);                                // they write what there is to say
  while (s.listens && !s.http.is_running()) std::this_thread::sleep_for(1ms);  // before that, stop does nothing
  s.http.stop();
  s.http.close_all();
  s.listening.join();
}

void Server::save_cache() {
  if (state_->owner) state_->owner->worker.save_cache();
}

}  // namespace braid::serve
