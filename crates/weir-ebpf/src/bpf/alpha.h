// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// DCTCP's estimate of the share of its segments that is marked (RFC 8257, section 3.3), in whole numbers. It is `Dctcp` of
// weir-packet; a test runs both on the same windows and compares.
#ifndef WEIR_ALPHA_H
#define WEIR_ALPHA_H

#include <linux/bpf.h>

/* Alpha has 20 bits after the point: what a 16th of it loses by rounding is below any window's segment. */
#define ALPHA_BITS 20
#define ALPHA_ONE (1U << ALPHA_BITS)
/* A new window has a weight of 1/16 (section 4.2). */
#define GAIN_BITS 4

/* Once a window: alpha = (1 - g) alpha + g M, of `acked` segments and those of them that were marked. */
static __always_inline __u32 next_alpha(__u32 alpha, __u32 acked, __u32 marked)
{
	if (!acked)
		return alpha;
	/* The share is 1 at most, whatever the kernel's two counts say. */
	if (marked > acked)
		marked = acked;
	__u32 share = ((__u64)marked << ALPHA_BITS) / acked;
	__u32 next = alpha - (alpha >> GAIN_BITS) + (share >> GAIN_BITS);

	/* Rounding would hold alpha above 0 for good. */
	if (!marked && alpha < 1 << GAIN_BITS)
		next = 0;
	return next > ALPHA_ONE ? ALPHA_ONE : next;
}

#endif
