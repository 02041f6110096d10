#version 460
// Computes: delta_net before its norm and gate (lib/ops/delta_net_ref.cpp).
// Shapes: shaders/recurrent.h; key_dim up to 8 * kRows, value_dim a multiple of 4. Launch: a workgroup for each head
// and kScanColumns of its columns. Numerics: f32.
// Paper: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464, sec. 3, in its recurrent form.
#extension GL_GOOGLE_include_directive : require
#define WEIR_DELTA 1
#include "common/recurrent_scan.glsl"

void main() { scan(); }
