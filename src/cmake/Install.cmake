# What `cmake --install` puts down: headers, both forms of the library, the command, a CMake package, a pkg-config
# file, and the licences.
include(CMakePackageConfigHelpers)
if(NOT TARGET qinfer)
  return()
endif()
set(qinfer_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/qinfer)
install(TARGETS qinfer EXPORT qinferTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_BINARY_DIR}/libqinfer.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT qinferTargets NAMESPACE qinfer:: DESTINATION ${qinfer_package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/qinfer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/docs/third-party.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The notices that go with what is linked in (docs/third-party.md), as the packages that were built with bring them.
install(FILES ${abseil_dir}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}/third-party RENAME abseil)
foreach(package libpcre2-dev libutf8proc-dev nlohmann-json3-dev libxxhash-dev libcli11-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/third-party RENAME ${package} OPTIONAL)
endforeach()
# libstdc++ and libgcc: the compiler's own.
string(REGEX MATCH "^[0-9]+" qinfer_compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
install(FILES /usr/share/doc/gcc-${qinfer_compiler_major}-base/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/third-party
  RENAME libstdc++ OPTIONAL)
configure_package_config_file(${PROJECT_SOURCE_DIR}/src/cmake/qinferConfig.cmake.in ${PROJECT_BINARY_DIR}/qinferConfig.cmake
  INSTALL_DESTINATION ${qinfer_package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qinferConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qinferConfig.cmake ${PROJECT_BINARY_DIR}/qinferConfigVersion.cmake
  DESTINATION ${qinfer_package_dir})
file(RELATIVE_PATH qinfer_pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/src/cmake/qinfer.pc.in ${PROJECT_BINARY_DIR}/qinfer.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qinfer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET qinfer_cli)
  install(TARGETS qinfer_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
