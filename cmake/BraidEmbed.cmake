# cmake -DOUT=<file.cc> -DFOLDER=<folder> -DFILES=<names, separated by commas> -P BraidEmbed.cmake
# Writes the files as arrays of bytes: braid::serve::page_files() of serve/page.h.
string(REPLACE "," ";" names "${FILES}")
set(arrays)
set(rows)
foreach(name IN LISTS names)
  file(READ ${FOLDER}/${name} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER ${name} identifier)
  string(APPEND arrays "constexpr unsigned char k_${identifier}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(k_${identifier}), sizeof k_${identifier}}},\n")
endforeach()
file(WRITE ${OUT} "// Generated from src/serve/page.
#include \"serve/page.h\"

namespace braid::serve {
namespace {
${arrays}const PageFile kFiles[] = {
${rows}};
}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace braid::serve
")
