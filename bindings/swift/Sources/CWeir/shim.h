/* The C headers, which are not part of this package. */
#if !__has_include(<weir/weir.h>)
#error "weir/weir.h was not found: let pkg-config find weir.pc (PKG_CONFIG_PATH), or set WEIR_DIR (README.md)"
#endif
#include <weir/weir.h>
