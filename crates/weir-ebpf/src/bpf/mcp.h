// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// The window law of MCP in the kernel's arithmetic: whole numbers of 64 bits, no division by zero, no overflow. It is
// `Variant::Yielding` of weir-endhost (docs/mcp.md derives it); a test runs both on the same windows and compares.
//
// A number with `_16` at its end counts in 1/2^16; likewise _20 and so on. Bounds are in the comments, as powers of two.
#ifndef WEIR_MCP_H
#define WEIR_MCP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MCP_ONE_16 (1ULL << 16)
#define MCP_ONE_20 (1ULL << 20)
#define MCP_NS_PER_S 1000000000ULL

/* As in `mcp/mod.rs` and `mcp/variants.rs`. */
#define MCP_YIELD_HORIZON_RTTS 500
#define MCP_ONE_24 (1ULL << 24)
#define MCP_MAX_PRICE_24 (250000ULL << 24)
#define MCP_ASKING_16 (MCP_ONE_16 / 4)
#define MCP_MIN_WINDOW_16 66 /* 0.001 segments */
#define MCP_GIVEN_UP_16 MCP_ONE_16
#define MCP_HURRY_RTTS 10

/* Beyond these a number is taken for the bound. */
#define MCP_MAX_SEGMENTS (1ULL << 31)
#define MCP_MAX_RTT_NS ((1ULL << 32) - 1)
#define MCP_MAX_LEFT_NS (1ULL << 42)
#define MCP_MAX_WINDOW_16 (1ULL << 36)
#define MCP_MAX_LINK_8 (1ULL << 31)

/* As `McpParams::to_bytes` writes it. */
struct mcp_params {
	__u64 base_rtt_ns;     /* the round trip through empty queues, 1 to 2^32 - 1 */
	__u64 link_8;          /* segments a second of the own link; 0: not known */
	__u32 payload;         /* bytes of a full segment, 1 and more */
	__u32 empty_margin_20; /* empty round trips of the margin, beside the one that is measured */
	__u32 ahead_20;        /* below 1 */
	__u32 price_rise_20;   /* at most 1 */
	__u32 price_fall_20;   /* at most 1 */
	__u32 unused;
};

/* What is known of a flow at the end of a window. */
struct mcp_facts {
	__u64 remaining; /* bytes not sent yet, with what has to be sent again */
	__u64 left_ns;   /* until the deadline; 0 after it */
	__u64 rtt_ns;    /* smoothed; 0 stands for the empty one */
	__u32 acked;     /* packets of the window, and how many of them were marked */
	__u32 marked;
};

/* What is remembered of it. */
struct mcp {
	__u64 window_16;         /* segments a round trip */
	__u64 price_24;          /* below 2^42 */
	__u64 longest_margin_ns; /* a quarter of the time that it had at its start */
	__u64 rtt_ns;            /* that of the window */
	__u32 hurries;           /* its deadline was so near that it goes at its link's rate */
	__u32 gave_up;           /* when the last window ended */
};

static __always_inline __u64 mcp_least(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __always_inline __u64 mcp_most(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 mcp_rtt(const struct mcp_params *params, const struct mcp_facts *facts)
{
	return facts->rtt_ns ? mcp_least(facts->rtt_ns, MCP_MAX_RTT_NS) : params->base_rtt_ns;
}

/* The window that ends the flow its margin before the deadline, a little ahead; at most 2^36. */
static __always_inline __u64 mcp_required_16(const struct mcp_params *params, const struct mcp_facts *facts,
					     const struct mcp *mcp)
{
	__u64 rtt = mcp_rtt(params, facts), left = mcp_least(facts->left_ns, MCP_MAX_LEFT_NS);
	__u64 segments = facts->remaining / params->payload + !!(facts->remaining % params->payload);
	__u64 empty = params->base_rtt_ns * params->empty_margin_20 >> 20; /* 2^32 * 2^32 */
	/* Without empty round trips there is no margin at all. */
	__u64 margin = params->empty_margin_20 ? mcp_least(rtt + empty, mcp->longest_margin_ns) : 0;
	__u64 aim = left > margin ? (left - margin) : 0;

	/* 2^42 of nanoseconds and 20 bits more are below 2^63. */
	aim = mcp_most(aim * (MCP_ONE_20 - params->ahead_20) >> 20, rtt);
	__u64 share_32 = (rtt << 32) / aim; /* at most 2^32 */
	return mcp_least(mcp_least(segments, MCP_MAX_SEGMENTS) * share_32 >> 16, MCP_MAX_WINDOW_16);
}

/* What the own link carries in a round trip; without bound if it is not known. */
static __always_inline __u64 mcp_link_16(const struct mcp_params *params, __u64 rtt)
{
	if (!params->link_8)
		return MCP_MAX_WINDOW_16;
	/* 2^31 * 2^32 */
	__u64 window = mcp_least(params->link_8, MCP_MAX_LINK_8) * rtt / (MCP_NS_PER_S >> 8);
	return mcp_most(mcp_least(window, MCP_MAX_WINDOW_16), 1);
}

/* Whether what remains takes no longer than there is, at the link's rate. */
static __always_inline int mcp_is_in_reach(const struct mcp_params *params, const struct mcp_facts *facts)
{
	__u64 link_8 = mcp_least(params->link_8, MCP_MAX_LINK_8);

	if (!link_8)
		return 1;
	__u64 segments = facts->remaining / params->payload + !!(facts->remaining % params->payload);
	__u64 segments_8 = mcp_least(segments, MCP_MAX_SEGMENTS) << 8; /* 2^39 */
	/* Whole seconds and the rest apart: the product of all segments with 10^9 would not fit into 64 bits. */
	__u64 seconds = mcp_least(segments_8 / link_8, 1ULL << 32);
	__u64 needed_ns = seconds * MCP_NS_PER_S + segments_8 % link_8 * MCP_NS_PER_S / link_8; /* 2^62 + 2^30 */
	return needed_ns <= facts->left_ns;
}

/* Multiplied as long as windows are marked, and less with each that is not. */
static __always_inline __u64 mcp_next_price_24(const struct mcp_params *params, const struct mcp_facts *facts,
					       __u64 price)
{
	if (!facts->marked || !facts->acked)
		return price * (MCP_ONE_20 - params->price_fall_20) >> 20; /* 2^42 * 2^20 */
	__u64 marked = mcp_least(((__u64)facts->marked << 24) / facts->acked, MCP_ONE_24);
	__u64 rise_20 = params->price_rise_20 * marked >> 24;
	/* 2^42 * 2^21 */
	return mcp_least(mcp_most(price * (MCP_ONE_20 + rise_20) >> 20, marked), MCP_MAX_PRICE_24);
}

/* What the required window is divided by: 1 + laxness * price * (rtt / empty rtt)^3; at least 2^27. */
static __always_inline __u64 mcp_yielding_27(const struct mcp_params *params, const struct mcp_facts *facts, __u64 price)
{
	__u64 base = params->base_rtt_ns, rtt = mcp_rtt(params, facts);
	__u64 horizon = base * MCP_YIELD_HORIZON_RTTS; /* 2^41 */
	/* A flow that has not given up has a 500th of the horizon left: its square needs bits that are left over there. */
	__u64 share_22 = (mcp_least(facts->left_ns, horizon) << 22) / horizon; /* 2^41 * 2^22 */
	__u64 laxness_32 = share_22 * share_22 >> 12;
	/* Below 2^20, so its cube is below 2^60: a path is no fuller than 256 times as long as the empty one. */
	__u64 fullness_12 = mcp_least(mcp_most((rtt << 12) / base, 1 << 12), (1 << 20) - 1);
	__u64 cube_12 = fullness_12 * fullness_12 * fullness_12 >> 24;
	/* Times the price, in halves of 21 bits: 2^32 * 2^21 each. */
	__u64 whole = laxness_32 * (price >> 21), part = laxness_32 * (price & ((1 << 21) - 1));
	__u64 yields_24 = (whole + (part >> 21) + (1 << 10)) >> 11;

	/* Before the product could overflow. */
	if (yields_24 > (1ULL << 62) / cube_12)
		return 1ULL << 53;
	return ((1ULL << 36) + yields_24 * cube_12) >> 9;
}

/* Bounds a window by the link, or has the flow give up. */
static __always_inline void mcp_settle(struct mcp *mcp, const struct mcp_params *params, const struct mcp_facts *facts,
				       __u64 window)
{
	__u64 rtt = mcp_rtt(params, facts), link = mcp_link_16(params, rtt);

	mcp->rtt_ns = rtt;
	mcp->gave_up = facts->left_ns < params->base_rtt_ns || !mcp_is_in_reach(params, facts);
	if (mcp->hurries && params->link_8)
		window = link;
	mcp->window_16 = mcp->gave_up ? MCP_GIVEN_UP_16 : mcp_most(mcp_least(window, link), MCP_MIN_WINDOW_16);
}

/* A flow begins. */
static __always_inline void mcp_start(struct mcp *mcp, const struct mcp_params *params, const struct mcp_facts *facts)
{
	mcp->price_24 = 0;
	mcp->longest_margin_ns = facts->left_ns / 4;
	mcp->hurries = facts->left_ns < MCP_HURRY_RTTS * params->base_rtt_ns;
	mcp_settle(mcp, params, facts, mcp_required_16(params, facts, mcp));
}

/* A window ends. */
static __always_inline void mcp_next(struct mcp *mcp, const struct mcp_params *params, const struct mcp_facts *facts)
{
	__u64 required = mcp_required_16(params, facts, mcp);

	mcp->price_24 = mcp_next_price_24(params, facts, mcp->price_24);
	__u64 kept = (required << 27) / mcp_yielding_27(params, facts, mcp->price_24); /* 2^36 * 2^27 */
	__u64 window = mcp_most(kept, mcp_least(required, MCP_ASKING_16));
	mcp_settle(mcp, params, facts, window);
}

/* Bytes a second that realise the window, at segments of so many bytes (below 2^17). */
static __always_inline __u64 mcp_pacing_rate(const struct mcp *mcp, __u32 segment)
{
	__u64 bytes_16 = mcp->window_16 * segment; /* 2^53 */
	__u64 rtt = mcp->rtt_ns ? mcp->rtt_ns : 1;

	/* Three ranges, each with as many bits of 10^9 as the product has room for. */
	if (bytes_16 < 1ULL << 33)
		return mcp_most((bytes_16 * MCP_NS_PER_S / rtt) >> 16, 1);
	if (bytes_16 < 1ULL << 43)
		return (bytes_16 * (MCP_NS_PER_S >> 9) / rtt) >> 7; /* 2^43 * 2^21 */
	return mcp_least((bytes_16 >> 16) * 1000000 / rtt, 1ULL << 53) * 1000; /* 2^37 * 2^20 */
}

#endif
