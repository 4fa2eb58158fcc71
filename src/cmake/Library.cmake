# libqinfer itself. The shared library exports qinfer_* alone and brings everything else with it, libstdc++ included; the static
# variant is one archive of our objects and the third-party ones.
file(GLOB api_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/*.cpp)
if(NOT api_sources)
  return()
endif()
add_library(qinfer SHARED ${PROJECT_SOURCE_DIR}/src/cmake/anchor.cpp)
add_library(qinfer::qinfer ALIAS qinfer)
set(export_map ${PROJECT_SOURCE_DIR}/src/cmake/qinfer.map)
target_link_libraries(qinfer PRIVATE
  -Wl,--whole-archive $<TARGET_FILE:qinfer_api> -Wl,--no-whole-archive qinfer_api qinfer_options)
target_include_directories(qinfer INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(qinfer PRIVATE -Wl,--version-script=${export_map} -Wl,--exclude-libs,ALL -Wl,-Bsymbolic
  -Wl,--no-undefined -Wl,-z,noexecstack -Wl,--gc-sections)
if(NOT QINFER_SANITIZE)
  target_link_options(qinfer PRIVATE -static-libstdc++ -static-libgcc)
else()
  # The sanitizers' runtime is in the program, not in the library.
  target_link_options(qinfer PRIVATE -Wl,-z,undefs)
endif()
set_target_properties(qinfer PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${export_map})
