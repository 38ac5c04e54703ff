// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// What is known of the flow that a socket carries.
#ifndef WEIR_FLOW_H
#define WEIR_FLOW_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* `from` of a flow of which no packet was seen since it was hinted. */
#define NOT_BEGUN (~0ULL)

enum flow_type { DEADLINE = 1, KNOWN = 2, UNKNOWN = 3 };

/* As `Hint::to_bytes` writes it. */
struct flow {
	__u64 size;        /* bytes, of types DEADLINE and KNOWN */
	__u64 deadline_ns; /* by the monotonic clock */
	__u64 from;        /* bytes of the socket before the flow, or before it last began anew */
	__u64 last_ns;     /* when its last packet left */
	__u32 type;
	__u32 aged_at;     /* timeouts in a row when it last aged */
	__u32 raised;      /* classes by which it rose for its age */
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} weir_flows SEC(".maps");

#endif
