#!/bin/sh
# Every public header compiles alone, and twice in one file, as C99, C11, C++11 and C++20, without a warning, with each
# compiler that is here. Every _INIT macro fills its struct completely and sets struct_size.
# Usage: headers.sh INCLUDE_FOLDER. CC and CXX name the project's compilers; gcc and clang are tried as well.
set -u
include=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wundef -Wshadow -Wconversion -Werror"
failures=0
n_compiled=0

compile() {  # compile COMPILER LANGUAGE STANDARD FILE [WARNING...]
    compiler=$1 language=$2 standard=$3 file=$4
    shift 4
    n_compiled=$((n_compiled + 1))
    if ! "$compiler" -x "$language" -std="$standard" $warnings "$@" -I "$include" -fsyntax-only "$file" \
        >"$work/log" 2>&1; then
        echo "$compiler -std=$standard: $(basename "$file") fails"
        sed -n '1,12p' "$work/log"
        failures=$((failures + 1))
    fi
}

compile_all() {  # compile_all FILE: with every compiler and standard
    for c in $c_compilers; do
        for standard in c99 c11; do compile "$c" c $standard "$1" -Wstrict-prototypes -Wmissing-prototypes; done
    done
    for cxx in $cxx_compilers; do
        for standard in c++11 c++20; do compile "$cxx" c++ $standard "$1"; done
    done
}

# add COMPILER LIST...: prints the list, and the compiler when it can be run and no compiler of the list is of the same
# make.
add() {
    compiler=$1
    shift
    new=$("$compiler" --version 2>/dev/null | sed -n '2p') || new=
    [ -n "$new" ] || { echo "$@"; return; }
    for known in "$@"; do
        [ "$("$known" --version | sed -n '2p')" = "$new" ] && { echo "$@"; return; }
    done
    echo "$@" "$compiler"
}
c_compilers=$(add clang $(add gcc $(add "${CC:-cc}")))
cxx_compilers=$(add clang++ $(add g++ $(add "${CXX:-c++}")))
if [ -z "$c_compilers" ] || [ -z "$cxx_compilers" ]; then
    echo "no C or no C++ compiler found"
    exit 1
fi
echo "compilers: $c_compilers $cxx_compilers"

for header in "$include"/weir/*.h; do
    name=$(basename "$header" .h)
    echo "#include \"weir/$name.h\"" >"$work/${name}_once.c"
    printf '#include "weir/%s.h"\n#include "weir/%s.h"\n' "$name" "$name" >"$work/${name}_twice.c"
    compile_all "$work/${name}_once.c"
    compile_all "$work/${name}_twice.c"
done

# One function per macro; -Wextra says so when a macro leaves a field out. weir_chat_message has no struct_size: the
# options of a call say how large the caller's is.
macros=$(sed -n 's/^#define \(WEIR_[A-Z_]*_INIT\) .*/\1/p' "$include"/weir/*.h)
{
    echo '#include "weir/weir.h"'
    for macro in $macros; do
        type=$(echo "${macro%_INIT}" | tr '[:upper:]' '[:lower:]')
        echo "uint32_t use_$type(void);"
        size="value.struct_size"
        [ "$type" = weir_chat_message ] && size="(uint32_t)sizeof(value)"
        echo "uint32_t use_$type(void) { $type value = $macro; return $size - (uint32_t)sizeof($type); }"
    done
} >"$work/init_macros.c"
if [ -z "$macros" ]; then
    echo "no _INIT macro found"
    failures=$((failures + 1))
fi
compile_all "$work/init_macros.c"

# And run: struct_size is right in C.
{
    cat "$work/init_macros.c"
    echo 'int main(void) { uint32_t wrong = 0;'
    for macro in $macros; do echo "wrong |= use_$(echo "${macro%_INIT}" | tr '[:upper:]' '[:lower:]')();"; done
    echo 'return wrong != 0; }'
} >"$work/init_run.c"
first_c=${c_compilers%% *}
if ! "$first_c" -I "$include" "$work/init_run.c" -o "$work/init_run" || ! "$work/init_run"; then
    echo "an _INIT macro does not set struct_size to the size of its struct"
    failures=$((failures + 1))
fi

echo "$n_compiled compilations, $failures failures"
[ "$failures" -eq 0 ]
