/* A table, so: */
/* clang-format off */
/* The standard operators, version by version: ports, attributes, defaults.
 *
 * Notation: [a, b, rows] lists ne[0], ne[1], … ; `rows` is the axis of the value's domain. Values are f32
 * unless said. "weight" names a seat weight. An attribute without a default must be given. Every
 * operator gives a row the same bits whatever else is in the pass (docs/design.md, numeric rule).
 *
 * embed/1          in: ids i32 [1, rows]  weight: table [width, vocabulary]   out: [width, rows]
 *                  Row `id` of the table, decoded to f32. An id outside the table fails the row.
 * linear/1         in: x [k, rows]  weights: 1 … 8 matrices [k, n_i]  attr: biases bool = false
 *                  out: one [n_i, rows] for each matrix. With biases, each matrix is followed by a
 *                  vector [n_i] in the weight list.
 * rms_norm/1       in: x [d, rows] or [d, heads, rows]  weight: [d]  attr: eps f64
 *                  out: x * 1/sqrt(mean(x²)+eps) * weight, over ne[0].
 * reshape/1        in: x  attr: ne i64[1…3] (without the row axis; the product is kept)  out: the same values
 * add/1            in: a, b of one shape  out: a + b
 * mul/1            in: a, b of one shape  out: a * b
 * scale/1          in: x  attr: factor f64  out: x · factor, the factor rounded to f32
 * rope/1           in: x [d, heads, rows]  attrs: kind str = "neox", dims i64 = d, base f64, scale f64 = 1
 *                  out: x with the first `dims` of each head rotated by the row's pos[0]: pair (i, i+dims/2)
 *                  by the angle scale·pos·base^(−2i/dims).
 * append/1         in: x [w, rows] or [d, heads, rows]  plane: w (append or ring)   out: none
 *                  Writes each row of the pass to its index in its slot, in the plane's type.
 * attention/1      in: q [d, heads, rows]  weight: sinks [heads] F32, may be left out  planes: k, v (append
 *                  or ring)  attrs: kv_heads i64, scale f64, window i64 = 0, source str = "plane"
 *                  out: [v_width/kv_heads, heads, rows]
 *                  Softmax over the plane's rows 0 … index of the row's slot, or with a window over its last
 *                  `window` rows, which a ring needs and must have. A sink takes part in the softmax as a score
 *                  of its head, and has no value. Query head h reads kv head h·kv_heads/heads.
 * router/1         in: x [k, rows]  weights: [k, experts], and bias [experts] F32, which may be left out
 *                  attrs: scoring str = "softmax" | "sigmoid", used i64, renormalise bool = true, sum_min
 *                  f64 = 0, scale f64 = 1
 *                  out: ids i32 [used, rows] (the largest score plus bias first, the lower id on a tie),
 *                  weights [used, rows] (of the scores without bias; renormalised: divided by their sum, at
 *                  least sum_min; then scaled), logits [experts, rows]
 * routed_experts/1 in: x [k, rows], ids i32 [used, rows], weights [used, rows], residual [k, rows]
 *                  attr: bank i64   out: residual + Σ weight · expert(x), picks summed by rule N7
 * select_rows/1    in: x [w, rows]  attr: domain str = "logit_rows"   out: [w, logit rows]
 * head/1           in: x [k, rows]  weight: [k, vocabulary]   out: [vocabulary, rows]
 * slice/1          in: x [d, rows] or [d, heads, rows]  attrs: first i64, count i64
 *                  out: values first … first+count-1 of ne[0]
 * gate/1           in: x, gate of the shape of x or [1, rows]  attr: function str = "sigmoid" | "silu"
 *                  out: x · f(gate)
 * l2_norm/1        in: x [d, rows] or [d, heads, rows]  attrs: eps f64, scale f64 = 1
 *                  out: x · (scale · 1/sqrt(Σx²+eps)), over ne[0]
 * short_conv/1     in: x [c, rows]  weight: [taps, c] F32, the newest tap last  plane: rw (fixed, (taps−1)·c)
 *                  attr: activation str = "silu" | "none"
 *                  out: f(Σ weight[i]·x of the row taps−1−i before), channel by channel; rows of the slot before
 *                  the pass come from the plane
 * delta_rule/1     in: q, k [dk, hk, rows], v [dv, hv, rows], a, b [hv, rows]  weights: decay [hv], dt_bias [hv]
 *                  plane: rw (fixed, hv·dk·dv)  attr: head_order str = "tiled" | "grouped"
 *                  out: [dv, hv, rows]: for each value head the gated delta rule, row after row:
 *                  S ← e^(decay·softplus(a+dt_bias))·S; u = σ(b)·(v − Sᵀk); S ← S + k uᵀ; out = Sᵀq.
 *                  Value head h reads key head h mod hk (tiled) or h·hk/hv (grouped).
 * concat/1         in: a [n, rows], b [m, rows]  out: [n+m, rows], the values of a and then those of b
 * previous/1       in: x [w, rows]  plane: rw (fixed, w)
 *                  out: [w, rows]: x of the slot's row before; of the first row of a pass what the plane holds,
 *                  zeros before a slot's first. The plane then holds x of the last row.
 * recall/1         in: like i32 [1, rows]  plane: r (fixed, w)   out: [w, rows]: what the plane holds, a row a slot
 * keep/1           in: x [w, rows]  plane: w (fixed, w)   out: none
 *                  The plane holds x, a row a slot.
 */
/* clang-format on */
#ifndef BLOOMERY_OPERATORS_H_
#define BLOOMERY_OPERATORS_H_

#include <bloomery/base.h>

#define BL_OP_EMBED "embed"
#define BL_OP_LINEAR "linear"
#define BL_OP_RMS_NORM "rms_norm"
#define BL_OP_RESHAPE "reshape"
#define BL_OP_ADD "add"
#define BL_OP_MUL "mul"
#define BL_OP_SCALE "scale"
#define BL_OP_ROPE "rope"
#define BL_OP_APPEND "append"
#define BL_OP_ATTENTION "attention"
#define BL_OP_ROUTER "router"
#define BL_OP_ROUTED_EXPERTS "routed_experts"
#define BL_OP_SELECT_ROWS "select_rows"
#define BL_OP_HEAD "head"

#define BL_OP_SLICE "slice"
#define BL_OP_GATE "gate"
#define BL_OP_L2_NORM "l2_norm"
#define BL_OP_SHORT_CONV "short_conv"
#define BL_OP_DELTA_RULE "delta_rule"

#define BL_OP_CONCAT "concat"
#define BL_OP_PREVIOUS "previous"
#define BL_OP_RECALL "recall"
#define BL_OP_KEEP "keep"

#endif /* BLOOMERY_OPERATORS_H_ */
