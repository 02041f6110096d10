// Compiled for the precompiled headers that the C++ tests share (CMakeLists.txt); there is nothing in it.
