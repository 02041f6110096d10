// A block of 32 numbers of a decode step's input, as integers of 15 bits with a scale: what weights are multiplied
// with.
#ifndef WEIR_STEP_BLOCK_GLSL
#define WEIR_STEP_BLOCK_GLSL
#include "common/int_dot.glsl"

// Values are 128 * hi + lo, hi in -127..127 and lo in -64..63, as bytes; of elements 0..15 and of 16..31.
struct Input {
    uvec4 hi[2], lo[2];
    float scale;
    int sum;  // of the values
};

#endif
