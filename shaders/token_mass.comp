#version 460
// Computes: attention weights of tokens, summed over query rows and the heads of a group (lib/ops/token_mass_ref.cpp).
// Shapes: mass [n_kv_heads, capacity * 16], q [n_rows, n_heads, head_dim], lse [n_rows, n_heads].
// Launch: a workgroup for each table row, further ones in steps of the grid; a KV head along y. Two teams share a
// token: each has every other pair of a row and a head.
// Numerics: f32; the same bits whatever other pages there are.
#extension GL_GOOGLE_include_directive : require
#include "common/attend.glsl"

layout(push_constant, std430) uniform Push { TokenMassPush a; };

const uint kShares = kTeams / kPageRows;  // of a token's pairs
shared float shares[kTeams];

// The pair's weight of the key in this team's lanes; 0 if the row does not see the token.
float weight_of(vec4 key[kColumns], uint token, uint row, uint head, bool is_there) {
    const uint at = row * a.n_heads + head;
    float dot = 0.0;
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
        const vec4 query = query_vector(a.q, at, a.head_dim, 8u * c + team_lane());
        [[unroll]] for (uint k = 0u; k < 4u; ++k) dot = fma(query[k], key[c][k], dot);
    }
    dot = team_sum(dot);
    if (!is_there || !sees(sight_of(a.pos + row, a.window, 0u), token)) return 0.0;
    return exp_near(soft_capped(a.scale * dot, a.soft_cap) - Floats(a.lse).v[at]);
}

void main() {
    const uint kv_head = gl_WorkGroupID.y, group = a.n_heads / a.n_kv_heads, n_pairs = a.n_rows * group;
    const uint token = team() % kPageRows, share = team() / kPageRows;
    const uint n_pages = Words(a.n_pages).v[kv_head];
    for (uint table_row = gl_WorkGroupID.x; table_row < n_pages; table_row += gl_NumWorkGroups.x) {
        const uint at = kv_head * a.capacity + table_row, n = Words(a.len).v[at];
        const uint pos = Words(a.first_pos).v[at] + token;
        Words page = Words(page_at(a.pool, Words(a.slots).v[at], a.head_dim));
        vec4 key[kColumns];
        [[unroll]] for (uint c = 0u; c < kColumns; ++c)
            key[c] = token < n ? row_vector(page, token, a.head_dim, 8u * c + team_lane()) : vec4(0.0);
        float mass = 0.0;
        // All teams make as many rounds, because their lanes may share a subgroup.
        for (uint first = 0u; first < n_pairs; first += kShares) {
            const bool is_there = first + share < n_pairs;
            const uint pair = is_there ? first + share : 0u;
            mass += weight_of(key, pos, pair / group, kv_head * group + pair % group, is_there);
        }
        barrier();  // the shares of a page before may still be read
        if (team_lane() == 0u) shares[share * kPageRows + token] = mass;
        barrier();
        const uint i = gl_LocalInvocationID.x;
        if (i < n) {
            precise float sum = 0.0;
            for (uint s = 0u; s < kShares; ++s) sum += shares[s * kPageRows + i];
            Floats(a.mass).v[at * kPageRows + i] = sum;
        }
    }
}
