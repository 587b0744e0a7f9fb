// Any bytes as the body of a request: the first byte chooses the route. What is accepted can be rendered and read by
// the shipped model: it has tokens, all of them the model's, and room for an answer; everything else is refused by an
// Error, which becomes one line of JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "serve/api_error.h"
#include "serve/completions.h"
#include "serve/messages.h"
#include "serve/openai.h"
#include "serve/responses.h"
#include "serve/tokens.h"
#include "support/data.h"
#include "sys/error.h"

namespace {

using namespace braid;
using namespace braid::serve;

void check_work(const Asked& asked, int64_t vocab, int64_t context) {
  const engine::Request& request = asked.work.request;
  if (request.prompt.empty() || std::ssize(request.prompt) > context) std::abort();
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) std::abort();
  }
  int64_t last = 0;
  for (const int64_t mark : request.marks) {
    if (mark < last || mark > std::ssize(request.prompt)) std::abort();
    last = mark;
  }
  if (std::ssize(request.prompt) + request.generate.tokens_max > context) std::abort();
  (void)work_of(asked, asked.n - 1);
}

void read(char route, const std::string& body, engine::LanguageModel& model) {
  Defaults defaults;
  defaults.model = "tiny";
  const int64_t vocab = model.runner().config().vocab, context = model.runner().options().context;
  switch (route) {
    case 'c':
      return check_work(read_chat(body, model, defaults), vocab, context);
    case 'p':
      for (const Asked& asked : read_completions(body, model, defaults)) check_work(asked, vocab, context);
      return;
    case 'r':
      return check_work(read_responses(body, model, defaults).asked, vocab, context);
    case 'm':
      return check_work(read_messages(body, model, defaults), vocab, context);
    case 'n':
      return (void)read_messages(body, model, defaults, false);
    case 't':
      return (void)tokens_json(body, model, defaults);
    case 'd':
      return (void)text_json(body, model);
    default:
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static engine::LanguageModel model(
      support::shipped_tiny(),
      {.numerics = Numerics::serving(DType::f32), .context = 2048, .sequences = 1, .chunk = 64, .threads = 1});
  if (size == 0) return 0;
  try {
    read(static_cast<char>(data[0]), std::string(reinterpret_cast<const char*>(data) + 1, size - 1), model);
  } catch (const ApiError& e) {
    (void)dump(error_json(e.type(), e.what(), e.param(), e.code()));
  } catch (const Error& e) {  // of JSON, the template or the tokenizer
    if (e.fault() != Fault::bad_input) std::abort();
  }
  return 0;
}
