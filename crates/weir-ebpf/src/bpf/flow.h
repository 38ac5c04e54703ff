// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// What is known of the flow that a socket carries.
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* `from` of a flow of which no packet was seen since it was hinted. */
#define NOT_BEGUN (~0ULL)

/* PLACED: by who serves it, in the class that `size` is. */
enum flow_type { DEADLINE = 1, KNOWN = 2, UNKNOWN = 3, PLACED = 4 };

/* As `flow_bytes` writes it. */
struct flow {
	__u64 size;        /* bytes, of types DEADLINE and KNOWN */
	__u64 deadline_ns; /* by the monotonic clock */
	__u64 from;        /* bytes of the socket before the flow, or before it last began anew */
	__u64 last_ns;     /* when its last packet left */
	__u32 type;
	__u32 aged_at;     /* timeouts in a row when it last aged */
	__u32 raised;      /* classes by which it rose for its age */
	__u32 mark;        /* of the socket, if that said all this */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} weir_flows SEC(".maps");

/* A mark of a socket that says what the socket sends, as `Hint::mark_after` makes it: from above, 3 bits of kind, one that only tells flows
 * apart, 2 of type, 13 of size and of time. */
#define MARK_KIND 5
#define MARK_NUMBER 0x1fff
#define MARK_TIME_STEP_NS 10000ULL

static __always_inline int is_hint(__u32 mark)
{
	return mark >> 29 == MARK_KIND && mark >> 26 & 3;
}

static __always_inline __u64 number_of_mark(__u32 code)
{
	/* A floating-point number: 5 bits of power, 8 digits, and a ninth that is always 1 where the power is not 0. */
	__u32 power = code >> 8 & 31, digits = code & 255;

	return power ? (__u64)(256 + digits) << (power - 1) : digits;
}

/* A flow begins: that which its socket's new mark says. */
static __always_inline void take_mark(struct flow *flow, __u32 mark, __u64 now)
{
	flow->size = number_of_mark(mark >> 13 & MARK_NUMBER);
	flow->deadline_ns = now + number_of_mark(mark & MARK_NUMBER) * MARK_TIME_STEP_NS;
	flow->from = NOT_BEGUN;
	flow->last_ns = 0;
	flow->type = mark >> 26 & 3;
	flow->aged_at = 0;
	flow->raised = 0;
	flow->mark = mark;
}

#endif
