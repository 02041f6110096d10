// Merging a long piece of text window by window, with the result of merging it at once: a list of all its symbols
// would take some sixty bytes for a byte of text, a window's takes a fixed amount.
//
// Why the result is the same. Merging takes the best pair again and again, the leftmost of equals, and how good a pair
// is depends on its two symbols alone. So as long as nothing merges across a border, both sides go through the steps
// that they would go through alone. Two things follow: neighbours in a result stay apart when the text of just these
// two is merged; and symbols of which all neighbours stay apart in this way are the result for their whole text,
// because a first merge across one of the borders would also happen when its two neighbours are merged alone. Inside of
// a window all neighbours stay apart; those at the border of two windows are tried. When they merge after all, the
// windows were too short for what reaches over the border, and everything is done again with longer ones.
#pragma once

#include <string_view>

#include "core/status.h"
#include "text/merge_list.h"

namespace weir {

inline constexpr size_t kWindowBytes = size_t{1} << 15;  // a piece up to this length is merged at once

template <class Merge, class Emit, class Undo>
class LongPiece {
 public:
  // merge(text, list) leaves the symbols of `text` in `list`. emit(symbol, text) takes the next symbol of the result,
  // whose bytes count from the start of `text`, and returns a Status. undo() forgets all that was emitted.
  LongPiece(const Merge& merge, const Emit& emit, const Undo& undo, std::pmr::memory_resource* memory)
      : merge_(merge), emit_(emit), undo_(undo), list_(memory), border_(memory) {}

  // An error of emit counts once the windows are known to be long enough; before, its symbol may still change. Nothing
  // is emitted after it. WEIR_ERR_CANCELLED counts at once.
  Status run(std::string_view piece, size_t window = kWindowBytes) {
    for (;; window *= 2) {
      bool stays = true;
      const Status status = try_windows(piece, window, stays);
      if (window >= piece.size() || stays || status.code() == WEIR_ERR_CANCELLED) return status;
      undo_();
    }
  }

 private:
  // Returns the first error of emit. `stays`: symbols stay apart at all borders, so the result is that of the piece.
  Status try_windows(std::string_view piece, size_t window, bool& stays) {
    Status status;
    size_t n_last = 0;  // bytes of the symbol before `at`
    for (size_t at = 0; at < piece.size();) {
      const std::string_view text = piece.substr(at, window);
      merge_(text, list_);
      stays = at == 0 || stay_apart(piece.substr(at - n_last, n_last + list_.first().n_bytes), n_last);
      if (!stays) return status;
      // What lies near the end of the window is found by the next one again, together with what follows.
      const size_t n_wanted = at + text.size() == piece.size() ? text.size() : window - window / 4;
      size_t n_kept = 0;
      list_.for_each([&](const Symbol& symbol) {
        if (symbol.begin + size_t{symbol.n_bytes} > n_wanted) return;
        if (status.ok()) status = emit_(symbol, text);
        n_last = symbol.n_bytes;
        n_kept = symbol.begin + n_last;
      });
      stays = n_kept > 0 && status.code() != WEIR_ERR_CANCELLED;
      if (!stays) return status;
      at += n_kept;
    }
    return status;
  }

  // Whether merging `text` gives two symbols, the first of `n_first` bytes.
  bool stay_apart(std::string_view text, size_t n_first) {
    merge_(text, border_);
    size_t n_symbols = 0;
    border_.for_each([&](const Symbol&) { ++n_symbols; });
    return n_symbols == 2 && border_.first().n_bytes == n_first;
  }

  const Merge& merge_;
  const Emit& emit_;
  const Undo& undo_;
  MergeList list_, border_;
};

}  // namespace weir
