// A request that is refused: the HTTP status and what OpenAI's error body says about it.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace braid::serve {

class ApiError : public std::exception {
 public:
  // `param` is the field that is to blame, `code` a word for programs; either may be empty.
  ApiError(int status, const char* type, std::string message, std::string param = "", const char* code = "")
      : status_(status), type_(type), text_(std::move(message)), param_(std::move(param)), code_(code) {}
  const char* what() const noexcept override { return text_.c_str(); }
  int status() const { return status_; }
  const char* type() const { return type_; }
  const std::string& param() const { return param_; }
  const char* code() const { return code_; }
  // Of a prompt that is too long; 0: it is about something else.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t context() const { return context_; }
  ApiError&& with_tokens(int64_t prompt, int64_t context) && {
    prompt_tokens_ = prompt;
    context_ = context;
    return std::move(*this);
  }

 private:
  int64_t prompt_tokens_ = 0, context_ = 0;
  int status_;
  const char* type_;
  std::string text_, param_;
  const char* code_;
};

[[noreturn]] inline void refuse(std::string message, std::string param = "", const char* code = "") {
  throw ApiError(400, "invalid_request_error", std::move(message), std::move(param), code);
}

// For a surface that translates its field `outer` to `inner`: an error of read() about `inner` names `outer` instead.
template <class Read>
auto said_of(const std::string& inner, const std::string& outer, const Read& read) {
  try {
    return read();
  } catch (const ApiError& e) {
    if (e.param() != inner) throw;
    std::string text = e.what();
    for (size_t at = 0; (at = text.find(inner, at)) != text.npos; at += outer.size())
      text.replace(at, inner.size(), outer);
    throw ApiError(e.status(), e.type(), std::move(text), outer, e.code());
  }
}

}  // namespace braid::serve
