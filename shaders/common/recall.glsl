// What the two shaders of recall in a decode step share.
#ifndef WEIR_RECALL_GLSL
#define WEIR_RECALL_GLSL
#include "recall.h"

// A number for this layer of this step that no other layer and no neighbouring step has, never 0.
uint ticket_of(uint now, uint n_layers, uint layer) {
    const uint ticket = now * n_layers + layer;
    return ticket == 0u ? 0xFFFFFFFFu : ticket;
}

#endif
