// The merge table and its use.
#include "text/bpe.h"

#include <bit>
#include <cstring>
#include <limits>

#include "text/tokenizer.h"

namespace weir {
namespace {

constexpr const char* kMergesKey = "tokenizer.ggml.merges";

uint64_t pair_of(weir_token left, weir_token right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

Status bad_merge(uint64_t index, const char* why) {
  return fail(WEIR_ERR_FORMAT, "%s[%llu]: %s", kMergesKey, static_cast<unsigned long long>(index), why);
}

// Looks tokens up by text while merges are read. Merges come in the order in which their results became tokens, so the
// next result is mostly the token after the last one; trying that first saves half of the work.
class MergeResolver {
 public:
  MergeResolver(const Vocab& vocab, const AddedTokens& added) : vocab_(vocab), added_(added) {}

  weir_token part(std::string_view text) const {
    const weir_token token = vocab_.find(text);
    return token >= 0 ? token : added_.find(text);
  }

  weir_token result(std::string_view left, std::string_view right) {
    const weir_token guess = last_ + 1;
    if (static_cast<uint32_t>(guess) < vocab_.size() && vocab_.type(guess) == TokenType::kNormal &&
        is_sum(vocab_.text(guess), left, right)) {
      return last_ = guess;
    }
    if (left.size() + right.size() > kMaxTextBytes) return -1;
    char text[kMaxTextBytes];
    left.copy(text, left.size());
    right.copy(text + left.size(), right.size());
    return last_ = part({text, left.size() + right.size()});
  }

 private:
  static bool is_sum(std::string_view text, std::string_view left, std::string_view right) {
    return text.size() == left.size() + right.size() && text.substr(0, left.size()) == left &&
           text.substr(left.size()) == right;
  }

  const Vocab& vocab_;
  const AddedTokens& added_;
  weir_token last_ = -1;
};

}  // namespace

Status BpeMerges::read(const GgufFile& file, const Vocab& vocab, const AddedTokens& added, const HashKey& key,
                       OpenProgress& progress) {
  const GgufValue* merges = nullptr;
  WEIR_TRY(file.get_array(kMergesKey, GgufArray::kStrings, true, merges));
  if (merges->count > std::numeric_limits<int32_t>::max()) return bad_merge(merges->count - 1, "too many merges");
  slots_.assign(std::bit_ceil(merges->count * 3 / 2 + 2), Slot{0, 0, -1});
  hash_shift_ = static_cast<uint32_t>(64 - std::countr_zero(slots_.size()));
  key_ = key;
  MergeResolver resolver(vocab, added);
  GgufStrings strings(*merges);
  for (uint32_t rank = 0; strings.left() > 0; ++rank) {
    const std::string_view merge = strings.next();
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return bad_merge(rank, "not two texts with one space between them");
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const weir_token left_token = resolver.part(left), right_token = resolver.part(right);
    if (left_token < 0) return bad_merge(rank, "its left half is not a token");
    if (right_token < 0) return bad_merge(rank, "its right half is not a token");
    const weir_token merged = resolver.result(left, right);
    if (merged < 0) return bad_merge(rank, "its result is not a token");
    if (!vocab.is_mark(merged)) insert(left_token, right_token, rank, merged);  // a mark is never made of plain text
    WEIR_TRY(progress.step());
  }
  return {};
}

void BpeMerges::insert(weir_token left, weir_token right, uint32_t rank, weir_token merged) {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  size_t at = first_slot(pair);
  for (; slots_[at].merged >= 0 && slots_[at].pair != pair; at = (at + 1) & mask) ++n_collisions_;
  if (slots_[at].merged < 0) slots_[at] = {pair, rank, merged};
}

weir_token BpeMerges::find(weir_token left, weir_token right, uint32_t& rank) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t at = first_slot(pair); slots_[at].merged >= 0; at = (at + 1) & mask) {
    if (slots_[at].pair != pair) continue;
    rank = slots_[at].rank;
    return slots_[at].merged;
  }
  return -1;
}

void BpeMerges::apply(std::string_view piece, const Vocab& vocab, MergeList& list) const {
  list.clear();
  for (size_t i = 0; i < piece.size(); ++i)
    list.add(static_cast<uint32_t>(i), 1, vocab.find_byte(static_cast<uint8_t>(piece[i])));
  list.run([this](const Symbol& left, const Symbol& right, uint32_t& rank) {
    return left.token < 0 || right.token < 0 ? -1 : find(left.token, right.token, rank);
  });
}

}  // namespace weir
