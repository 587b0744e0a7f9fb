// The logits that llama.cpp computes for every token of a prompt: tools/oracle/gguf_in_llama.py builds and runs it.
//   llama_logits MODEL.gguf OUT.f32 IDS...             logits [tokens, vocabulary] FP32
//   llama_logits MODEL.gguf OUT.i32 --text FILE        its token ids, one I32 each
//   llama_logits MODEL.gguf OUT.i32 --greedy N IDS...  the N most likely next ids, one after the other
// Linked with libllama; not part of Braid.
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void quiet(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

static bool save(const char* path, const void* bytes, size_t size) {
  std::FILE* file = std::fopen(path, "wb");
  const bool ok = file && std::fwrite(bytes, 1, size, file) == size;
  return file && std::fclose(file) == 0 && ok;
}

static int tokenize(llama_model* model, const char* out, const char* path) {
  std::string text;
  std::FILE* file = std::fopen(path, "rb");
  if (!file) return 3;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  std::vector<llama_token> ids(text.size() + 16);
  const int n = llama_tokenize(llama_model_get_vocab(model), text.data(), static_cast<int32_t>(text.size()), ids.data(),
                               static_cast<int32_t>(ids.size()), false, true);
  return n >= 0 && save(out, ids.data(), static_cast<size_t>(n) * sizeof(llama_token)) ? 0 : 4;
}

// Runs `ids` at positions from `begin`; logits of all of them.
static const float* decode(llama_context* context, const std::vector<llama_token>& ids, int32_t begin) {
  const auto n = static_cast<int32_t>(ids.size());
  llama_batch batch = llama_batch_init(n, 0, 1);
  for (int32_t i = 0; i < n; ++i) {
    batch.token[i] = ids[static_cast<size_t>(i)];
    batch.pos[i] = begin + i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  batch.n_tokens = n;
  const int failed = llama_decode(context, batch);
  llama_batch_free(batch);
  return failed ? nullptr : llama_get_logits(context);
}

static std::vector<llama_token> greedy(llama_context* context, std::vector<llama_token> ids, int n, size_t vocabulary) {
  std::vector<llama_token> out;
  for (int32_t at = 0; static_cast<int>(out.size()) < n;) {
    const float* logits = decode(context, ids, at);
    if (!logits) break;
    const float* last = logits + (ids.size() - 1) * vocabulary;
    at += static_cast<int32_t>(ids.size());
    out.push_back(static_cast<llama_token>(std::max_element(last, last + vocabulary) - last));
    ids = {out.back()};
  }
  return out;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  llama_log_set(quiet, nullptr);
  llama_backend_init();
  const std::string mode = argv[3];
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = false;  // no repacking: its AMX kernels crash programs that did not request tiles
  model_params.vocab_only = mode == "--text";
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (!model) return 3;
  if (mode == "--text") return tokenize(model, argv[2], argv[4]);
  std::vector<llama_token> ids;
  for (int i = mode == "--greedy" ? 5 : 3; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = 1024;
  params.n_threads = params.n_threads_batch = 2;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  llama_context* context = llama_init_from_model(model, params);
  if (!context) return 4;
  const auto vocabulary = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  if (mode == "--greedy") {
    const auto out = greedy(context, ids, std::atoi(argv[4]), vocabulary);
    return save(argv[2], out.data(), out.size() * sizeof(llama_token)) ? 0 : 6;
  }
  const float* logits = decode(context, ids, 0);
  return logits && save(argv[2], logits, vocabulary * ids.size() * sizeof(float)) ? 0 : 6;
}
