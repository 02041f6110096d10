// cmocka for C++ tests: its headers have no guards for C++, and its macro `fail` collides with weir::fail.
#pragma once

extern "C" {
// cmocka.h needs these before it, whatever order a formatter would like.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
}

#undef fail
#undef fail_msg
#define fail_msg(...)                   \
  do {                                  \
    print_error("ERROR: " __VA_ARGS__); \
    print_error("\n");                  \
    _fail(__FILE__, __LINE__);          \
  } while (0)
