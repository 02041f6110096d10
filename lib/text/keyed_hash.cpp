// Drawing hash keys.
#include "text/keyed_hash.h"

#include "core/random.h"

namespace weir {

HashKey random_hash_key() { return {random_number(), random_number()}; }

}  // namespace weir
