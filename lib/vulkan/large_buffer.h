// Buffers larger than one allocation of the driver's: one range of addresses over several pieces of memory. Devices
// need sparse binding for it, which desktop GPUs have.
#pragma once

#include "vulkan/memory.h"

namespace weir::vulkan {

// Makes one; its memory is in `pieces`, of which `n_pieces` are in use. WEIR_ERR_UNSUPPORTED with the limits where the
// device has no sparse binding, or takes no buffer of this size.
Status make_large_buffer(const Device& d, uint64_t bytes, Allocation& out, Piece* pieces, size_t most,
                         size_t& n_pieces);
// Gives back the pieces of this buffer, after the buffer itself.
void release_pieces(const Device& d, VkBuffer buffer, Piece* pieces, size_t& n_pieces);

}  // namespace weir::vulkan
