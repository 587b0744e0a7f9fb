// What a test says of an Error.
#pragma once
#include <string>

#include "sys/error.h"

namespace braid::support {

// The text of the Error that `work` throws; empty when it throws none.
template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace braid::support
