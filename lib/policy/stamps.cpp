// Options of the policies that go by stamps, and their rules; see stamps.h.
#include "policy/stamps.h"

namespace weir {

Status read_stamps(OptionReader& options, StampOptions& o) {
  static constexpr const char* kRules[] = {"top_r", "alpha"};
  static constexpr const char* kSources[] = {"digest", "exact_mass"};
  static constexpr const char* kScopes[] = {"evictable", "all"};
  // Giving r without alpha selects top_r, unless stamp_rule says otherwise.
  if (options.has("r") && !options.has("alpha")) o.rule = 0;
  WEIR_TRY(options.get_word("stamp_rule", o.rule, kRules));
  WEIR_TRY(options.get_f32("r", o.r, 0.0f, 1.0f));
  WEIR_TRY(options.get_f32("alpha", o.alpha, 0.0f, 1.0f));
  WEIR_TRY(o.rule == 0 ? options.contradicts("alpha", "stamp_rule=top_r")
                       : options.contradicts("r", "stamp_rule=alpha"));
  if (options.has("digest")) o.exact_mass = 0;  // digests have no other use here
  WEIR_TRY(options.get_word("stamp_source", o.exact_mass, kSources));
  WEIR_TRY(options.get_word("rank_scope", o.rank_all, kScopes));
  WEIR_TRY(options.get_f32("protect_share", o.protect.share, 0.0f, 0.75f));
  if (options.has("protect_recent")) {
    WEIR_TRY(options.contradicts("protect_share", "protect_recent"));
    o.protect.share = 0.0f;
  }
  WEIR_TRY(options.get_u32("protect_recent", o.protect.pages, 0, 1u << 20));
  return options.get_u32("min_decode_pages", o.pinned.min_decode_pages, 2, 1u << 20);
}

void set_stamps(StepRules& rules, const StampOptions& o, bool holds_all) {
  rules.victim = VictimRule::kStalest;
  rules.protect = o.protect;
  rules.observe = holds_all           ? StepRules::Observe::kNone
                  : o.exact_mass != 0 ? StepRules::Observe::kStampMass
                                      : StepRules::Observe::kStampDigest;
  if (rules.observe == StepRules::Observe::kStampDigest) rules.digest = o.digest;
  rules.by_gap = o.by_gap != 0 && !holds_all;
  rules.stamp_rule = static_cast<StampRule>(o.rule);
  rules.rank_all = o.rank_all != 0;
  rules.r = o.r;
  rules.alpha = o.alpha;
  rules.stamp_spread = o.spread;
}

}  // namespace weir
