# Third-party libraries beside Abseil, each for one job, all linked statically into libqinfer.
find_path(QINFER_PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(QINFER_PCRE2_LIBRARY NAMES libpcre2-8.a REQUIRED)
add_library(qinfer_pcre2 INTERFACE)
target_include_directories(qinfer_pcre2 SYSTEM INTERFACE ${QINFER_PCRE2_INCLUDE})
target_compile_definitions(qinfer_pcre2 INTERFACE PCRE2_STATIC PCRE2_CODE_UNIT_WIDTH=8)
target_link_libraries(qinfer_pcre2 INTERFACE ${QINFER_PCRE2_LIBRARY})

find_path(QINFER_UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(QINFER_UTF8PROC_LIBRARY NAMES libutf8proc.a REQUIRED)
add_library(qinfer_utf8proc INTERFACE)
target_include_directories(qinfer_utf8proc SYSTEM INTERFACE ${QINFER_UTF8PROC_INCLUDE})
target_compile_definitions(qinfer_utf8proc INTERFACE UTF8PROC_STATIC)
target_link_libraries(qinfer_utf8proc INTERFACE ${QINFER_UTF8PROC_LIBRARY})

# Header-only.
find_path(QINFER_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(QINFER_XXHASH_INCLUDE xxhash.h REQUIRED)

add_library(qinfer_headers INTERFACE)
target_include_directories(qinfer_headers SYSTEM INTERFACE
  ${QINFER_JSON_INCLUDE} ${QINFER_XXHASH_INCLUDE})
