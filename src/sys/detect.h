// Detection for those who cannot ask machine(), because env() is still being read.
#pragma once
#include <string>

#include "sys/machine.h"

namespace braid::sys {

// What machine() would return if BRAID_CPU were `cap`; dispatch stays as it is.
Machine detect_machine(const std::string& cap);

}  // namespace braid::sys
