# Compiler flags, tools and packages shared by every module. Everything comes from Debian's packages (tools/packages.txt).

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# x86-64-v2 is the minimum; faster instructions are chosen at run time. Without -maes -mpclmul Highway's baseline falls to SSSE3.
set(BRAID_ARCH -march=x86-64-v2 -maes -mpclmul)
if(BRAID_SANITIZE OR BRAID_FUZZ OR BRAID_QUICK)
  # One static target: a copy of every kernel for each instruction set would take several times as long to compile.
  set(BRAID_ARCH -march=x86-64-v3 -maes -mpclmul -DHWY_COMPILE_ONLY_STATIC)
endif()
add_library(braid_flags INTERFACE)
target_compile_options(braid_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${BRAID_ARCH};-Wall;-Wextra;-Wconversion;-Wshadow;-fno-math-errno>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${BRAID_WERROR}>>:-Werror>)
# g++ 12 warns of overlapping copies in `"text" + std::string` that do not exist (GCC bug 105651).
target_compile_options(braid_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
target_include_directories(braid_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(BRAID_SANITIZE)
  target_compile_options(braid_flags INTERFACE -fsanitize=${BRAID_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(braid_flags INTERFACE -fsanitize=${BRAID_SANITIZE})
endif()

if(BRAID_FUZZ)
  target_compile_options(braid_flags INTERFACE -fsanitize=fuzzer-no-link)  # coverage of all modules, not only the target
endif()

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(hwy REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)
find_library(UTF8PROC utf8proc REQUIRED)
find_package(Threads REQUIRED)
if(BRAID_TESTS)
  find_package(GTest REQUIRED)
  add_library(braid_support STATIC tests/support/data.cc)  # what all tests share: tests/support and tests/data
  target_include_directories(braid_support PUBLIC ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(braid_support PRIVATE BRAID_SOURCE="${CMAKE_SOURCE_DIR}")
  target_link_libraries(braid_support PUBLIC braid_flags GTest::gtest_main)
  # NCCL and CUDA for tests without a GPU, loaded by name.
  add_library(fake_nccl MODULE tests/support/fake_nccl.cc)
  target_link_libraries(fake_nccl PRIVATE braid_flags Threads::Threads)
  # Its functions have types of its own, as the library that it stands for has.
  set_source_files_properties(tests/support/fake_nccl.cc PROPERTIES
    COMPILE_OPTIONS $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
endif()
if(BRAID_BENCH)
  find_package(benchmark REQUIRED)
  # linear_bench compares with it. Debian's dnnl-config.cmake demands OpenCL headers that nothing here uses.
  find_library(DNNL dnnl REQUIRED)
endif()
if(BRAID_CUDA)
  # Before the language is enabled, or CMake takes the compiler's own default.
  set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "GPU architectures")
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know nvcc supports it
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
  # fmt 9 disables constexpr under nvcc, and then its own format strings do not compile.
  target_compile_definitions(braid_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
endif()
