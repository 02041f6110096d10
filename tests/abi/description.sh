#!/bin/sh
# The ABI of the built library against docs/abi/weir-1.abi (functions, types, sizes, offsets) and docs/abi/constants.txt
# (numbers of enum values). Additions pass: functions, fields at the end of a struct, enum values. Everything else
# breaks programs and fails.
# Usage: description.sh LIBRARY SOURCE_FOLDER           compare
#        description.sh LIBRARY SOURCE_FOLDER --update  write symbols.txt, constants.txt and weir-1.abi anew
# The library needs debug information for lib/api, which every build of the project has. Exit status 77: libabigail is
# not installed.
set -u
library=$1 source=$2 mode=${3:-compare}
abi=$source/docs/abi
LC_ALL=C
export LC_ALL
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if ! command -v abidw >/dev/null 2>&1 || ! command -v abidiff >/dev/null 2>&1; then
    echo "SKIPPED: abidw and abidiff are not installed (Debian package abigail-tools)"
    exit 77
fi

constants() {
    cat "$source"/include/weir/*.h | grep -oE '^ +WEIR_[A-Z0-9_]+ = -?[0-9]+' | sed 's/^ *//' | sort
}

# Public types only, and nothing that depends on the machine: no paths, no architecture, no list of needed libraries.
describe() {
    abidw --headers-dir "$source/include/weir" --drop-private-types --no-architecture --no-corpus-path \
        --no-comp-dir-path --no-show-locs --no-elf-needed --exported-interfaces-only --type-id-style hash "$library" |
        sed "s| path='[^']*/lib/api/| path='lib/api/|"
}

describe >"$work/fresh.abi" || exit 1
n_described=$(grep -c '<function-decl ' "$work/fresh.abi")
n_exported=$("${NM:-nm}" -D --defined-only "$library" | awk '$2 == "T"' | wc -l)
if [ "$n_described" -ne "$n_exported" ]; then
    echo "abidw described $n_described of $n_exported functions; is there debug information for all of lib/api?"
    exit 1
fi
constants >"$work/constants"

if [ "$mode" = --update ]; then
    "${NM:-nm}" -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
        sort >"$abi/symbols.txt"
    cp "$work/constants" "$abi/constants.txt"
    cp "$work/fresh.abi" "$abi/weir-1.abi"
    n_symbols=$(wc -l <"$abi/symbols.txt")
    echo "written: symbols.txt ($n_symbols symbols), constants.txt ($(wc -l <"$abi/constants.txt")), weir-1.abi"
    exit 0
fi

failures=0
if grep -n "='/" "$abi/weir-1.abi"; then
    echo "weir-1.abi holds a path of the machine that made it"
    failures=1
fi
comm -23 "$abi/constants.txt" "$work/constants" >"$work/changed"
if [ -s "$work/changed" ]; then
    echo "enum values that are gone or have another number:"
    sed 's/^/  /' "$work/changed"
    failures=1
fi
layout() { "${PYTHON:-python3}" "$source/tests/abi/layout.py" "$1" | sort >"$2"; }
layout "$abi/weir-1.abi" "$work/layout_before" && layout "$work/fresh.abi" "$work/layout_now" || exit 1
comm -23 "$work/layout_before" "$work/layout_now" >"$work/changed"
if [ -s "$work/changed" ] || ! [ -s "$work/layout_before" ]; then
    echo "fields that are gone, moved or of another type (struct, number, offset in bits, name, type), or a struct"
    echo "without struct_size that has another size:"
    sed 's/^/  /' "$work/changed"
    failures=1
fi
abidiff --suppressions "$source/tests/abi/additions.abignore" --no-added-syms "$abi/weir-1.abi" "$work/fresh.abi" \
    >"$work/report" 2>&1
status=$?
if [ $status -ne 0 ]; then
    cat "$work/report"
    echo "the ABI differs from docs/abi/weir-1.abi in more than additions (abidiff status $status)"
    failures=1
fi
[ $failures -eq 0 ] && echo "the ABI holds: $n_described functions, $(wc -l <"$work/constants") constants"
exit $failures
