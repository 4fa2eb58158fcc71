# libqinfer itself. The shared library exports qinfer_* alone and brings everything else with it, libstdc++ included; the static
# variant is one archive of our objects and the third-party ones.
file(GLOB api_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/*.cpp)
if(NOT api_sources)
  return()
endif()
add_library(qinfer SHARED ${PROJECT_SOURCE_DIR}/src/cmake/anchor.cpp)
add_library(qinfer::qinfer ALIAS qinfer)
set(export_map ${PROJECT_SOURCE_DIR}/src/cmake/qinfer.map)
target_link_libraries(qinfer PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,qinfer_api> qinfer_options)
target_include_directories(qinfer INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# The map hides every symbol but ours, also of archives (--exclude-libs would hide ours too, since they come from one).
target_link_options(qinfer PRIVATE -Wl,--version-script=${export_map} -Wl,-Bsymbolic -Wl,--no-undefined
  -Wl,-z,noexecstack -Wl,-z,relro -Wl,-z,now -Wl,--gc-sections -Wl,--as-needed)
if(NOT QINFER_SANITIZE)
  target_link_options(qinfer PRIVATE -static-libstdc++ -static-libgcc)
  target_compile_definitions(qinfer PRIVATE QINFER_OWN_LIBSTDCXX)
else()
  # The sanitizers' runtime is in the program, not in the library.
  target_link_options(qinfer PRIVATE -Wl,-z,undefs)
endif()
set_target_properties(qinfer PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${export_map})

# qinfer_archives(TARGET OUT): the files of all static libraries that TARGET needs, itself included.
function(qinfer_archives target out)
  set(todo ${target})
  set(seen)
  set(files)
  while(todo)
    list(POP_FRONT todo item)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
    if(item IN_LIST seen OR item MATCHES "^\\$<|^-")
      continue()
    endif()
    list(APPEND seen ${item})
    if(NOT TARGET ${item})
      if(item MATCHES "\\.a$")
        list(APPEND files ${item})
      endif()
      continue()
    endif()
    get_target_property(aliased ${item} ALIASED_TARGET)
    if(aliased)
      list(APPEND todo ${aliased})
      continue()
    endif()
    get_target_property(type ${item} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
      list(APPEND files $<TARGET_FILE:${item}>)
    endif()
    get_target_property(needs ${item} INTERFACE_LINK_LIBRARIES)
    if(needs)
      list(APPEND todo ${needs})
    endif()
  endwhile()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

qinfer_archives(qinfer_api archives)
set(merge_script ${PROJECT_BINARY_DIR}/libqinfer.mri)
list(TRANSFORM archives PREPEND "ADDLIB " OUTPUT_VARIABLE merge_lines)
list(JOIN merge_lines "\n" merge_lines)
file(GENERATE OUTPUT ${merge_script} CONTENT "CREATE libqinfer.a\n${merge_lines}\nSAVE\nEND\n")
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/libqinfer.a
  COMMAND ${CMAKE_COMMAND} -E rm -f libqinfer.a
  COMMAND ${CMAKE_AR} -M < ${merge_script}
  DEPENDS ${archives} ${merge_script} WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM
  COMMENT "Merging all parts into libqinfer.a")
add_custom_target(qinfer_archive ALL DEPENDS ${PROJECT_BINARY_DIR}/libqinfer.a)
# What a program in this build links for the static variant; installed programs take libqinfer.a, libstdc++, libm and threads.
add_library(qinfer_static INTERFACE)
add_library(qinfer::qinfer_static ALIAS qinfer_static)
add_dependencies(qinfer_static qinfer_archive)
target_include_directories(qinfer_static INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(qinfer_static INTERFACE ${PROJECT_BINARY_DIR}/libqinfer.a stdc++ m Threads::Threads)
