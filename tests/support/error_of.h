// Helpers for tests of errors.
#pragma once
#include <optional>
#include <string>

#include "sys/error.h"

namespace braid::support {

// The Error that `work` throws, if it throws one.
template <class Work>
std::optional<Error> caught(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Its text; empty without one.
template <class Work>
std::string error_of(Work work) {
  const std::optional<Error> error = caught(work);
  return error ? error->what() : "";
}

}  // namespace braid::support
