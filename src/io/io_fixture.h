// What the tests of this room share: a folder of their own, damaged files written by hand, and the message of an error.
#pragma once
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {

using support::error_of;
using support::fixtures;
class IoTest : public support::FolderTest {};

}  // namespace braid::io
