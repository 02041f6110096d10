// The distance of an op's result from the expected one, defined once for all op tests.
// NMSE = sum (got - want)^2 / sum want^2: independent of scale, and not dominated by single elements near zero. 0 means
// equal bits (up to the sign of zero).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

namespace weir::test {

struct Difference {
  double nmse = 0.0;       // infinite if one of the two is not finite and they differ
  double worst_abs = 0.0;  // largest |got - want|
  size_t worst = 0;        // its index
  float got = 0.0f;        // the two values there
  float want = 0.0f;
};

inline Difference difference(const float* got, const float* want, size_t n) {
  Difference d;
  double error = 0.0, power = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    double off = same ? 0.0 : std::fabs(double{got[i]} - double{want[i]});
    if (std::isnan(off)) off = std::numeric_limits<double>::infinity();
    error += off * off;
    if (std::isfinite(want[i])) power += double{want[i]} * double{want[i]};
    if (i == 0 || off > d.worst_abs) d = {0.0, off, i, got[i], want[i]};
  }
  d.nmse = error == 0.0 ? 0.0 : power == 0.0 ? std::numeric_limits<double>::infinity() : error / power;
  return d;
}

// Whether the NMSE is within the bound; prints the worst element if not.
inline bool close_enough(const char* what, const float* got, const float* want, size_t n, double max_nmse) {
  const Difference d = difference(got, want, n);
  if (d.nmse <= max_nmse) return true;
  std::fprintf(stderr, "%s: NMSE %.3g, bound %.3g; worst is element %zu of %zu: got %.9g, want %.9g\n", what, d.nmse,
               max_nmse, d.worst, n, static_cast<double>(d.got), static_cast<double>(d.want));
  return false;
}

}  // namespace weir::test
