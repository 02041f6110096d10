// Every weight type's arithmetic on the GPU. One line per type, as in lib/quant/quants.inc.
#pragma once

#include "cuda/quant/bf16.cuh"
#include "cuda/quant/f16.cuh"
#include "cuda/quant/f32.cuh"
#include "cuda/quant/iq4_nl.cuh"
#include "cuda/quant/iq4_xs.cuh"
#include "cuda/quant/mxfp4.cuh"
#include "cuda/quant/q2_k.cuh"
#include "cuda/quant/q3_k.cuh"
#include "cuda/quant/q4_0.cuh"
#include "cuda/quant/q4_1.cuh"
#include "cuda/quant/q4_k.cuh"
#include "cuda/quant/q5_0.cuh"
#include "cuda/quant/q5_1.cuh"
#include "cuda/quant/q5_k.cuh"
#include "cuda/quant/q6_k.cuh"
#include "cuda/quant/q8_0.cuh"
