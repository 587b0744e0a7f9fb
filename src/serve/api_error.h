// A request that is refused: OpenAI's error body and its HTTP status.
#pragma once
#include <exception>
#include <string>
#include <utility>

namespace braid::serve {

class ApiError : public std::exception {
 public:
  ApiError(int status, const char* type, std::string message)
      : status_(status), type_(type), text_(std::move(message)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  int status() const { return status_; }
  const char* type() const { return type_; }

 private:
  int status_;
  const char* type_;
  std::string text_;
};

[[noreturn]] inline void refuse(std::string message) {
  throw ApiError(400, "invalid_request_error", std::move(message));
}

}  // namespace braid::serve
