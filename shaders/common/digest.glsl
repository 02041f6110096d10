// The digest of a page from its keys (lib/ops/page_digest_ref.cpp), by a workgroup. An invocation has two neighbouring
// channels, of which a word holds one number each.
//
// Contract of the shader that includes it: `a.head_dim` and `a.kind`.
#ifndef WEIR_DIGEST_GLSL
#define WEIR_DIGEST_GLSL
#include "common/pages.glsl"
#include "common/sketch.glsl"
#include "common/subgroup.glsl"
#include "rules.h"
#if WEIR_DIGEST_KINDS != 7
#error "digest_of: other digests"
#endif

shared float centre[kMaxChannels];
shared float distances[kPageRows];

vec2 keys_at(Words page, uint token, uint word) {
    const uint key = page.v[token * (a.head_dim / 2u) + word];
    return vec2(low_bf16(key), high_bf16(key));
}

// Statistics of the word's channels.
struct Channels {
    vec2 high, low, middle, mean, mean_square;
};

Channels channels_of(Words page, uint word, uint n) {
    Channels c;
    c.high = c.low = keys_at(page, 0u, word);
    precise vec2 sum = vec2(0.0);
    for (uint t = 0u; t < n; ++t) {
        const vec2 key = keys_at(page, t, word);
        c.high = mix(c.high, key, greaterThan(key, c.high));
        c.low = mix(c.low, key, lessThan(key, c.low));
        sum += key;
    }
    precise vec2 middle = (c.high + c.low) * 0.5;
    c.middle = middle;
    c.mean = sum / float(n);
    precise vec2 squares = vec2(0.0);
    for (uint t = 0u; t < n; ++t) {
        precise vec2 away = keys_at(page, t, word) - c.mean;
        away *= away;
        squares += away;
    }
    c.mean_square = squares / float(n);
    return c;
}

vec2 mean_distances(Words page, uint word, uint n, vec2 from) {
    precise vec2 sum = vec2(0.0);
    for (uint t = 0u; t < n; ++t) sum += abs(keys_at(page, t, word) - from);
    return sum / float(n);
}

// Rounded to the nearest: drivers may give sqrt with an error of some units.
float sqrt_near(float x) {
    precise float y = sqrt(x);
    precise float rest = fma(-y, y, x) / (2.0 * y);
    return abs(rest) < y ? y + rest : y;  // not where x is 0, infinite or NaN
}

uint pair_of(vec2 x) { return bf16_pair(x.x, x.y); }

// The keys' mean distance from the centre, in the word behind it.
void radius(Words page, uint n, OutWords digest) {
    barrier();
    const uint i = gl_LocalInvocationID.x;
    if (i < n) {
        precise float square = 0.0;
        for (uint e = 0u; e < a.head_dim; ++e) {
            const vec2 key = keys_at(page, i, e / 2u);
            precise float away = ((e & 1u) == 0u ? key.x : key.y) - centre[e];
            away *= away;
            square += away;
        }
        distances[i] = sqrt_near(square);
    }
    barrier();
    if (i == 0u) {
        precise float sum = 0.0;
        for (uint t = 0u; t < n; ++t) sum += distances[t];
        digest.v[a.head_dim / 2u] = bf16_bits(sum / float(n));
    }
    barrier();  // the next page's centre
}

shared float borders[kSketchRows];
shared uint scales[kPageRows];

uint code_of(float x, float border) { return x < 0.0 ? (x < -border ? 0u : 1u) : (x < border ? 2u : 3u); }

// The scale of a rotated row, bf16.
uint scale_of(uint row) {
    precise float along = 0.0, square = 0.0;
    for (uint i = 0u; i < a.head_dim; ++i) {
        const float x = sketch_rows[row * a.head_dim + i], level = float(2u * code_of(x, borders[row])) - 3.0;
        precise float part = x * level;
        along += part;
        square += level * level;
    }
    return bf16_bits(divided(along, square) / float(sketch_block(a.head_dim)));
}

// The sketch of a page (lib/ops/sketch.cpp), kSketchRows tokens at a time; tokens that are not there are zeros.
void sketch_page(Words page, uint n, OutWords digest) {
    const uint d = a.head_dim, n_words = sketch_words(d), i = gl_LocalInvocationID.x;
    for (uint first = 0u; first < kPageRows; first += kSketchRows) {
        for (uint e = i; e < kSketchRows * d; e += kInvocations) {
            const uint token = first + e / d;
            const vec2 two = token < n ? keys_at(page, token, e % d / 2u) : vec2(0.0);
            sketch_rows[e] = (e & 1u) == 0u ? two.x : two.y;
        }
        rotate_rows(kSketchRows, d);
        if (i < kSketchRows) {
            precise float square = 0.0;
            for (uint e = 0u; e < d; ++e) {
                precise float x = sketch_rows[i * d + e];
                x *= x;
                square += x;
            }
            const bool is_finite = floatBitsToUint(square) < 0x7F800000u;
            precise float border = 2.0 * kHalfStep * sqrt_near(divided(square, float(d)));
            borders[i] = is_finite ? border : -1.0;
        }
        barrier();
        for (uint e = i; e < kSketchRows * n_words; e += kInvocations) {
            const uint row = e % kSketchRows, w = e / kSketchRows;
            uint word = 0u;
            for (uint k = 0u; k < min(kSketchChannels, d - w * kSketchChannels); ++k) {
                const uint code = code_of(sketch_rows[row * d + w * kSketchChannels + k], borders[row]);
                word |= code << (k % 4u * 8u + k / 4u * 2u);
            }
            digest.v[w * kPageRows + first + row] = borders[row] < 0.0 ? 0u : word;
        }
        if (i < kSketchRows) scales[first + i] = borders[i] < 0.0 ? kSketchInfinite : scale_of(i);
        barrier();
    }
    if (i < kPageRows / 2u) digest.v[n_words * kPageRows + i] = scales[2u * i] | scales[2u * i + 1u] << 16;
    barrier();  // the next page's rows
}

void digest_page(Words page, uint n, OutWords digest) {
    if (a.kind == kDigestSketch) {
        sketch_page(page, n, digest);
        return;
    }
    const uint word = gl_LocalInvocationID.x, half_at = a.head_dim / 2u;
    if (word < half_at) {
        const Channels c = channels_of(page, word, n);
        if (a.kind == kDigestMinMax) {
            digest.v[word] = pair_of(c.high);
            digest.v[half_at + word] = pair_of(c.low);
        } else if (a.kind == kDigestCuboidMean) {
            const vec2 r = mean_distances(page, word, n, c.middle);
            precise vec2 above = c.middle + r, below = c.middle - r;
            digest.v[word] = pair_of(above);
            digest.v[half_at + word] = pair_of(below);
        } else if (a.kind == kDigestSphereMean) {
            const uint stored = pair_of(c.middle);
            digest.v[word] = stored;
            centre[2u * word] = low_bf16(stored);
            centre[2u * word + 1u] = high_bf16(stored);
        } else {
            digest.v[word] = pair_of(c.mean);
            if (a.kind == kDigestMeanStd)
                digest.v[half_at + word] = pair_of(vec2(sqrt_near(c.mean_square.x), sqrt_near(c.mean_square.y)));
        }
    }
    if (a.kind == kDigestSphereMean) radius(page, n, digest);
}

uint words_of_digest() {
    if (a.kind == kDigestSketch) return (2u * sketch_words(a.head_dim) + 1u) * kPageRows / 2u;
    if (a.kind == kDigestCentroid) return a.head_dim / 2u;
    return a.kind == kDigestSphereMean ? a.head_dim / 2u + 1u : a.head_dim;
}

#endif
