// Nothing but the unit that CMake needs to precompile the common headers (src/cmake/Modules.cmake).
