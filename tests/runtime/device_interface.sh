#!/bin/sh
# The number by which the library and a device module know that they come from one tree of sources
# (cmake/device_interface.cmake): the same wherever the tree and the build folder lie, another one after any change of
# what both must agree on. Usage: device_interface.sh <cmake> <source folder> <device_interface.h of the build>
# That a module with another number is refused is in tests/device/test_absence.c.
set -eu
cmake=$1 source=$2 built=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "device_interface: $1" >&2
  exit 1
}
# number <source folder>
number() {
  "$cmake" "-DSOURCE_DIR=$1" "-DOUTPUT=$work/out/device_interface.h" "-DDEPFILE=$work/out/depfile" \
    -P "$source/cmake/device_interface.cmake" >"$work/messages" 2>&1 || return 1
  sed -n 's/.*kDeviceInterface = \(0x[0-9a-f]\{8\}\);/\1/p' "$work/out/device_interface.h"
}

mkdir "$work/out" "$work/tree"
cp -r "$source/lib" "$source/include" "$work/tree"
here=$(number "$source")
[ -n "$here" ] || fail "no number was made"
grep -q "kDeviceInterface = $here;" "$built" || fail "the build has another number than its sources, $here"
[ "$(number "$work/tree")" = "$here" ] || fail "a copy of the sources has another number"

# The contract; what it only names; the arguments of an op; lists; and a header that is included by way of another.
for file in device/module.h kv/kv_cache.h models/model.h policy/policy.h ops/step_rules.h ops/page_stamp.h \
            ops/ops.inc ops/traits.inc quant/quants.inc kv/device_recall.h models/layer.h; do
  grep -q "/lib/$file" "$work/out/depfile" || fail "the number does not depend on lib/$file"
  cp "$work/tree/lib/$file" "$work/before"
  echo "// another line" >>"$work/tree/lib/$file"
  [ "$(number "$work/tree")" != "$here" ] || fail "the number is the same after a change of lib/$file"
  cp "$work/before" "$work/tree/lib/$file"
done
# What only one side sees.
for file in api/handles.h runtime/session.h device/queue.h vulkan/ops.h runtime/session.cpp; do
  echo "// another line" >>"$work/tree/lib/$file"
done
[ "$(number "$work/tree")" = "$here" ] || fail "the number is another one after changes that a module cannot see"

sed -i 's/^struct PolicyNeeds;/&\nstruct NobodyDefinesThis;/' "$work/tree/lib/device/module.h"
! number "$work/tree" >"$work/none" || fail "a class that no header defines was accepted"
grep -q "NobodyDefinesThis" "$work/messages" || fail "the message does not name the class: $(cat "$work/messages")"
echo "device_interface: $here"
