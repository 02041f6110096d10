#version 460
// Computes: mamba2 before its gate and norm (lib/ops/mamba2_ref.cpp).
// Shapes: shaders/recurrent.h; key_dim up to 8 * kRows, value_dim a multiple of 4. Launch: a workgroup for each head
// and kScanColumns of its columns. Numerics: f32.
// Paper: Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, sec. 7, in its recurrent form.
#extension GL_GOOGLE_include_directive : require
#define WEIR_DELTA 0
#include "common/recurrent_scan.glsl"

void main() { scan(); }
