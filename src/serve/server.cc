#include "serve/server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <thread>
#include <utility>

#include "serve/api_error.h"
#include "serve/page.h"
#include "serve/worker.h"
#include "sys/error.h"
#include "sys/memory.h"

namespace braid::serve {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr size_t kBodyMax = size_t{32} << 20;
constexpr auto kSilenceMax = 4s;  // clients take a connection without a byte in five seconds for dead

// As long for a wrong key as for the right one.
bool equal(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\1' : b[i % b.size()]));
  return difference == 0;
}

void set_json(httplib::Response& response, const ordered_json& json, int status = 200) {
  response.status = status;
  response.set_content(json.dump(-1, ' ', false, ordered_json::error_handler_t::replace), "application/json");
}

void set_error(httplib::Response& response, int status, const char* type, const std::string& message) {
  set_json(response, error_json(status, type, message), status);
}

// Waits for a whole answer.
Said said_of(Reply& reply) {
  Said said;
  while (true) {
    const Reply::News news = reply.wait(1h);
    said.reasoning += news.text.reasoning;
    said.content += news.text.content;
    if (news.done) return said;
  }
}

void check(const Outcome& outcome) {
  if (outcome.error == kStopping) throw ApiError(503, "unavailable_error", outcome.error);
  if (!outcome.error.empty()) throw ApiError(500, "server_error", outcome.error);
}

std::string path_of(const PageFile& file) {
  return file.name == "index.html" ? "/" : "/page/" + std::string(file.name);
}

// The chat page. It holds nothing but the program's own files, and may load nothing else.
void add_page(httplib::Server& http) {
  for (const PageFile& file : page_files()) {
    const std::string_view name = file.name;
    const char* type = name.ends_with(".html")  ? "text/html; charset=utf-8"
                       : name.ends_with(".css") ? "text/css; charset=utf-8"
                                                : "text/javascript; charset=utf-8";
    http.Get(path_of(file), [file, type](const httplib::Request&, httplib::Response& r) {
      r.set_header("Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                   "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
      r.set_header("X-Content-Type-Options", "nosniff");
      r.set_header("Referrer-Policy", "no-referrer");
      r.set_header("Cache-Control", "no-cache");
      r.set_content(file.bytes.data(), file.bytes.size(), type);
    });
  }
}

bool is_public(const std::string& path) {
  return path == "/health" || std::ranges::any_of(page_files(), [&](const PageFile& f) { return path_of(f) == path; });
}

}  // namespace

struct Server::State {
  // What there is once the model is loaded.
  struct Loaded {
    engine::LanguageModel& model;
    Defaults defaults;
    Worker worker;
    std::time_t since = std::time(nullptr);
  };

  ServerOptions options;
  httplib::Server http;
  int port = 0;
  std::unique_ptr<Loaded> owner;
  std::atomic<Loaded*> loaded = nullptr;
  std::thread listening;
  std::map<std::string, const char*> allowed;  // the method of each path

  void set_routes();
  void post(const char* path, void (State::*answer)(const std::string& body, httplib::Response&));
  void get(const char* path, void (State::*answer)(httplib::Response&));
  bool refused(const httplib::Request& request, httplib::Response& response);
  Loaded& ready();
  void chat(const std::string& body, httplib::Response& response);
  void completions(const std::string& body, httplib::Response& response);
  void stream(Asked asked, httplib::Response& response);
  void explain(const httplib::Request& request, httplib::Response& response);
  ordered_json model_json();
  void models(httplib::Response& response);
  void health(httplib::Response& response);
  void save_cache(const std::string& body, httplib::Response& response);
  void tokenize(const std::string& text, httplib::Response& response);
  void detokenize(const std::string& text, httplib::Response& response);
  void metrics(httplib::Response& response);
};

Server::State::Loaded& Server::State::ready() {
  Loaded* now = loaded;
  if (!now) throw ApiError(503, "unavailable_error", "the model is being loaded");
  return *now;
}

// Health is public, and the page, which has a field for the key.
bool Server::State::refused(const httplib::Request& request, httplib::Response& response) {
  if (options.key.empty() || is_public(request.path)) return false;
  constexpr const char* kBearer = "Bearer ";
  std::string given = request.get_header_value("Authorization");
  given = given.starts_with(kBearer) ? given.substr(7) : request.get_header_value("x-api-key");
  if (equal(given, options.key)) return false;
  set_error(response, 401, "authentication_error", "the API key is missing or wrong");
  return true;
}

void Server::State::stream(Asked asked, httplib::Response& response) {
  struct Streaming {
    Asked asked;
    std::shared_ptr<Reply> reply;
    Chunks chunks{asked};
    bool begun = false;
  };
  auto s = std::make_shared<Streaming>();
  s->asked = std::move(asked);
  s->reply = ready().worker.submit(s->asked.work);
  const auto next = [s](size_t, httplib::DataSink& sink) {
    const auto write = [&](const std::string& text) { return text.empty() || sink.write(text.data(), text.size()); };
    if (!s->begun && !write(s->chunks.begin())) return false;
    s->begun = true;
    const Reply::News news = s->reply->wait(kSilenceMax);
    const bool silent = !news.done && news.text.reasoning.empty() && news.text.content.empty();
    if (!write(silent ? ": still here\n\n" : s->chunks.text(news.text))) return false;
    if (news.done) {
      if (!write(s->chunks.end(s->reply->outcome()))) return false;
      sink.done();
    }
    return true;
  };
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider("text/event-stream", next, [s](bool) { s->reply->cancel(); });
}

void Server::State::chat(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  Asked asked = read_chat(body, now.model, now.defaults);
  if (asked.stream) return stream(std::move(asked), response);
  const auto reply = now.worker.submit(asked.work);
  const Said said = said_of(*reply);
  const Outcome& outcome = reply->outcome();
  check(outcome);
  set_json(response, answer_json(asked, said, outcome, now.model));
}

void Server::State::completions(const std::string& body, httplib::Response& response) {
  Loaded& now = ready();
  std::vector<Asked> asked = read_completions(body, now.model, now.defaults);
  if (asked[0].stream) return stream(std::move(asked[0]), response);
  std::vector<std::shared_ptr<Reply>> replies;
  replies.reserve(asked.size());
  for (const Asked& one : asked) replies.push_back(now.worker.submit(one.work));
  std::vector<Said> said;
  std::vector<const Outcome*> outcomes;
  for (const auto& reply : replies) {
    said.push_back(said_of(*reply));
    outcomes.push_back(&reply->outcome());
    check(*outcomes.back());
  }
  set_json(response, completions_json(asked, said, outcomes));
}

ordered_json Server::State::model_json() {
  const Loaded& now = ready();
  return {{"id", now.defaults.model},
          {"object", "model"},
          {"created", now.since},
          {"owned_by", "braid"},
          {"max_model_len", now.model.runner().options().context}};
}

void Server::State::models(httplib::Response& response) {
  set_json(response, {{"object", "list"}, {"data", ordered_json::array({model_json()})}});
}

void Server::State::save_cache(const std::string&, httplib::Response& response) {
  if (options.cache_file.empty()) refuse("the server has no --cache-file");
  ready().worker.save_cache();
  set_json(response, {{"saved", options.cache_file}});
}

void Server::State::tokenize(const std::string& text, httplib::Response& response) {
  Loaded& now = ready();
  const ordered_json body = parse_body(text);
  const char* key = body.contains("content") ? "content" : "prompt";
  if (!body.contains(key) || !body[key].is_string()) refuse("there is no text: \"content\" or \"prompt\"");
  const auto ids = now.model.tokenizer().encode(body[key].get<std::string>(),
                                                body.contains("add_special") && body["add_special"] == true);
  set_json(response, {{"tokens", ids}, {"count", ids.size()}});
}

void Server::State::detokenize(const std::string& text, httplib::Response& response) {
  Loaded& now = ready();
  const ordered_json body = parse_body(text);
  if (!body.contains("tokens") || !body["tokens"].is_array()) refuse("'tokens' is not a list of token ids");
  std::vector<int32_t> ids;
  for (const ordered_json& id : body["tokens"]) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= now.model.runner().config().vocab)
      refuse("'tokens' holds what is not a token id: " + id.dump());
    ids.push_back(id.get<int32_t>());
  }
  const std::string decoded = now.model.tokenizer().decode(ids, false);
  set_json(response, {{"content", decoded}, {"prompt", decoded}});
}

// Prometheus' text format, under vLLM's names where it has one.
void Server::State::metrics(httplib::Response& response) {
  const Counters c = ready().worker.counters();
  std::string out;
  const auto line = [&](const char* name, const char* type, const char* help, int64_t value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  line("vllm:num_requests_running", "gauge", "Requests that are being answered.", c.running);
  line("vllm:num_requests_waiting", "gauge", "Requests that wait for a sequence.", c.waiting);
  line("vllm:prompt_tokens_total", "counter", "Prompt tokens read.", c.prompt_tokens);
  line("vllm:generation_tokens_total", "counter", "Tokens generated.", c.generated_tokens);
  line("braid:cached_tokens_total", "counter", "Prompt tokens whose state was kept from earlier requests.",
       c.cached_tokens);
  const engine::MemoryUse& m = c.memory;
  line("vllm:prefix_cache_queries_total", "counter", "Requests whose prompts were looked up in the cache.", m.lookups);
  line("vllm:prefix_cache_hits_total", "counter", "Requests that continued from a cached prefix.", m.hits);
  line("braid:memory_bytes", "gauge", "Bytes in use for sequences and cached prefixes.", m.bytes);
  line("braid:memory_limit_bytes", "gauge", "What --memory allows.", m.bytes_max);
  line("braid:pages_in_use", "gauge", "Pages of keys and values in use.", m.pages);
  line("braid:pages_free", "gauge", "Pages that are not in use; the limit of bytes may come first.", m.pages_free);
  line("braid:pages_leaked", "gauge", "References to pages without an owner; a bug unless 0.", m.pages_leaked);
  line("braid:state_slots_in_use", "gauge", "Recurrent states of sequences and snapshots.", m.slots);
  line("braid:cache_snapshots", "gauge", "Positions that prompts can continue from.", m.snapshots);
  line("braid:cache_tokens", "gauge", "Tokens in the tree of cached prefixes.", m.cached_tokens);
  line("process_resident_memory_bytes", "gauge", "Memory in use, that of mapped weights included.",
       sys::memory_resident());
  line("braid:requests_total", "counter", "Requests accepted.", c.requests);
  response.set_content(out, "text/plain; version=0.0.4");
}

void Server::State::health(httplib::Response& response) {
  (void)ready();
  set_json(response, {{"status", "ok"}});
}

// The library reads bodies of forms, which is what curl -d sends without a type, up to 8 KiB only; read here they have
// the limit of all others.
void Server::State::post(const char* path, void (State::*answer)(const std::string& body, httplib::Response&)) {
  allowed[path] = "POST";
  http.Post(path, [this, answer](const httplib::Request&, httplib::Response& r, const httplib::ContentReader& read) {
    std::string body;
    const bool whole = read([&](const char* data, size_t size) {
      if (body.size() + size > kBodyMax) return false;
      body.append(data, size);
      return true;
    });
    if (!whole)
      throw ApiError(413, "invalid_request_error",
                     fmt::format("the body is not whole, or larger than {} bytes", kBodyMax));
    (this->*answer)(body, r);
  });
}

void Server::State::get(const char* path, void (State::*answer)(httplib::Response&)) {
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
      return set_error(response, 404, "not_found_error", "no such request: " + asked);
    case 405:
      return set_error(response, 405, "invalid_request_error", fmt::format("{}; expected {}", asked, known->second));
    case 413:
      return set_error(response, 413, "invalid_request_error",
                       fmt::format("the body is larger than {} bytes", kBodyMax));
    case 414:
      return set_error(response, 414, "invalid_request_error", "the path is too long");
    default:
      set_error(response, response.status, "invalid_request_error",
                "not a request that HTTP/1.1 allows, or its headers are too long");
  }
}

void Server::State::set_routes() {
  using Request = httplib::Request;
  using Response = httplib::Response;
  post("/v1/chat/completions", &State::chat);
  post("/v1/completions", &State::completions);
  post("/cache/save", &State::save_cache);
  post("/tokenize", &State::tokenize);
  post("/detokenize", &State::detokenize);
  get("/v1/models", &State::models);
  get("/metrics", &State::metrics);
  get("/health", &State::health);
  add_page(http);
  http.Get("/v1/models/(.+)", [this](const Request& q, Response& r) {
    if (q.matches[1] != ready().defaults.model)
      throw ApiError(404, "not_found_error", "no such model: " + printable(q.matches[1].str()));
    set_json(r, model_json());
  });
  http.set_pre_routing_handler([this](const Request& q, Response& r) {
    return refused(q, r) ? httplib::Server::HandlerResponse::Handled : httplib::Server::HandlerResponse::Unhandled;
  });
  http.set_exception_handler([](const Request&, Response& r, const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ApiError& e) {
      set_error(r, e.status(), e.type(), e.what());
    } catch (const Error& e) {  // what the template or the tokenizer refuses
      const bool theirs = e.fault() == Fault::bad_input;
      set_error(r, theirs ? 400 : 500, theirs ? "invalid_request_error" : "server_error", e.what());
    } catch (const std::exception& e) {
      set_error(r, 500, "server_error", printable(e.what()));
    }
  });
  http.set_error_handler([this](const Request& q, Response& r) { explain(q, r); });
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
  constexpr size_t kThreads = 128;
  s.http.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
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
    fail_environment("serve", {.what = "cannot listen",
                               .got = fmt::format("{}:{}", printable(host), s.options.port),
                               .hint = "another --port, or an address of this machine"});
  s.listening = std::thread([&s] { s.http.listen_after_bind(); });
}

Server::~Server() { stop(); }

int Server::port() const { return state_->port; }

std::string Server::load(engine::LanguageModel& model, Defaults defaults) {
  // Both are read when first asked for, and from here on by several threads.
  (void)model.tokenizer();
  try {
    (void)model.render({{{"role", "user"}, {"content", "Hello"}}}, {});
  } catch (const Error&) {  // no template, or one that needs more: requests will say
  }
  State& s = *state_;
  s.owner.reset(new State::Loaded{model, std::move(defaults), Worker(model, s.options.cache_file)});
  s.loaded = s.owner.get();
  return s.owner->worker.ignored();
}

void Server::stop() {
  State& s = *state_;
  if (!s.listening.joinable()) return;
  while (!s.http.is_running()) std::this_thread::sleep_for(1ms);  // before that, stop does nothing
  s.http.stop();
  if (s.owner) s.owner->worker.stop();  // ends the answers that threads wait for
  s.listening.join();
}

void Server::save_cache() {
  if (state_->owner) state_->owner->worker.save_cache();
}

}  // namespace braid::serve
