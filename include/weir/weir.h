/* Weir: every stable public header. Weir is an embeddable runtime that lets a language model reason at length in a
 * fixed memory footprint. weir/experimental.h is not among them. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include "weir/base.h"
#include "weir/constraint.h"
#include "weir/model.h"
#include "weir/runtime.h"
#include "weir/save.h"
#include "weir/session.h"
#include "weir/text.h"

#endif /* WEIR_WEIR_H */
