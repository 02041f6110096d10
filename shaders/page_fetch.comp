#version 460
// Computes: the bytes of the pages that page_recall.comp brings back: raw copies from where they are, others from what
// the host has sent. Without its answer, or if it could not read one of them, the step is late.
// Shapes: as in PageRecallArgs; pages of page_quads. Launch: a workgroup for each page that may come back along x,
// further ones in steps of the grid; a KV head along y.
#extension GL_GOOGLE_include_directive : require
#include "common/moves.glsl"
#include "common/recall.glsl"
#include "common/wide.glsl"

layout(push_constant, std430) uniform Push { PageFetchPush a; };

bool host_has_sent(uint kv_head) {
    const uint now = Cells(a.state).v[kStateTokens] + 1u, at = kAnswerWords * kv_head;
    return Words(a.answers).v[at + kAnswerTicket] == ticket_of(now, a.n_layers, a.layer) &&
           Words(a.answers).v[at + kAnswerRefused] == 0u;
}

// The pages in the pool are most when all streams have brought back theirs. Executed by one invocation of all.
void note_most_resident() {
    Cells state = Cells(a.state);
    const uvec2 resident = uvec2(state.v[kStateResident], state.v[kStateResident + 1u]);
    const uvec2 most = uvec2(state.v[kStateResidentMax], state.v[kStateResidentMax + 1u]);
    if (!wide_less(most, resident)) return;
    state.v[kStateResidentMax] = resident.x;
    state.v[kStateResidentMax + 1u] = resident.y;
}

void main() {
    const uint kv_head = gl_WorkGroupID.y, stream = a.layer * a.n_kv_heads + kv_head;
    const uint n = Words(a.heads).v[kHeadWords * stream + kHeadEntries];
    for (uint i = gl_WorkGroupID.x; i < n; i += gl_NumWorkGroups.x) {
        const uint at = kEntryWords * (stream * a.most + i), copy = Words(a.entries).v[at + kEntryCopy];
        const bool is_raw = copy != kElsewhereWord, came = is_raw || host_has_sent(kv_head);
        if (!came && gl_LocalInvocationIndex == 0u) Cells(a.state).v[kStateLate] = 1u;
        if (!came) continue;
        const uvec2 from = is_raw ? nth_page(a.raw_pages, copy, a.page_quads)
                                  : nth_page(a.pages, kv_head * a.most + i, a.page_quads);
        copy_page(nth_page(a.pool, Words(a.entries).v[at + kEntrySlot], a.page_quads), from, a.page_quads);
    }
    if (gl_WorkGroupID.x + kv_head == 0u && gl_LocalInvocationIndex == 0u) note_most_resident();
}
