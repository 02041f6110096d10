// The digest of a page from its keys (lib/ops/page_digest_ref.cpp), by a workgroup. An invocation has two neighbouring
// channels, of which a word holds one number each.
//
// Contract of the shader that includes it: `a.head_dim` and `a.kind`.
#ifndef WEIR_DIGEST_GLSL
#define WEIR_DIGEST_GLSL
#include "common/pages.glsl"
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

void digest_page(Words page, uint n, OutWords digest) {
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
    if (a.kind == kDigestCentroid) return a.head_dim / 2u;
    return a.kind == kDigestSphereMean ? a.head_dim / 2u + 1u : a.head_dim;
}

#endif
