// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// Karuna's end host as a congestion control of the kernel's TCP: a flow that was hinted with a deadline goes by MCP
// (docs/mcp.md), all others by DCTCP. A flow that cannot meet its deadline any more gives up, and goes on like one of its size.
//
// The law says a window of any size, also below a segment, and asks for segments that are spaced by it. So the window is a
// rate here, by which the kernel paces; what may be under way is twice the window and two segments.
#include "dctcp.h"
#include "flow.h"
#include "mcp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The kernel's: it paces where nothing else does. */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
/* Segments that come further apart are acknowledged one by one, or a slow flow would hear of its path after 40 ms. */
#define APART_MS 1

/* How a flow with a deadline goes. */
struct pace {
	struct mcp mcp;
	__u64 deadline_ns; /* that of the hint, by which a new one is known */
	__u64 size;
	__u64 from;        /* bytes of the socket before the flow */
	__u64 began_ns;    /* when the window began that is being counted */
	__u32 delivered;   /* the socket's counts then */
	__u32 delivered_ce;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pace);
} weir_paces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mcp_params);
} weir_mcp SEC(".maps");

/* Bytes that a socket has sent, to 64 bits. */
static __always_inline __u64 sent_of(struct tcp_sock *tcp)
{
	return tcp->bytes_acked + (tcp->snd_nxt - tcp->snd_una);
}

static __always_inline void count_anew(struct tcp_sock *tcp, struct pace *pace, __u64 now)
{
	pace->began_ns = now;
	pace->delivered = tcp->delivered;
	pace->delivered_ce = tcp->delivered_ce;
}

static __always_inline struct mcp_facts facts_of(struct tcp_sock *tcp, struct pace *pace, __u64 now)
{
	__u64 sent = sent_of(tcp) - pace->from;
	/* Lost, and not sent again yet. */
	__u32 lost = tcp->lost_out > tcp->retrans_out ? tcp->lost_out - tcp->retrans_out : 0;
	struct mcp_facts facts = {
		.remaining = (pace->size > sent ? pace->size - sent : 0) + (__u64)lost * tcp->mss_cache,
		.left_ns = pace->deadline_ns > now ? pace->deadline_ns - now : 0,
		.rtt_ns = (__u64)(tcp->srtt_us >> 3) * 1000,
		.acked = tcp->delivered - pace->delivered,
		.marked = tcp->delivered_ce - pace->delivered_ce,
	};
	return facts;
}

/* The flow's pace, which begins with the hint. */
static __always_inline struct pace *pace_of(struct sock *sk, struct tcp_sock *tcp, struct flow *flow,
					    struct mcp_params *params, __u64 now)
{
	struct pace *pace = bpf_sk_storage_get(&weir_paces, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!pace || (pace->deadline_ns == flow->deadline_ns && pace->size == flow->size))
		return pace;
	pace->deadline_ns = flow->deadline_ns;
	pace->size = flow->size;
	/* Before its first packet the tagger has not seen it. */
	pace->from = flow->from == NOT_BEGUN ? sent_of(tcp) : flow->from;
	count_anew(tcp, pace, now);
	struct mcp_facts facts = facts_of(tcp, pace, now);
	mcp_start(&pace->mcp, params, &facts);
	return pace;
}

/* Ends a window that has lasted a round trip. */
static __always_inline void advance(struct tcp_sock *tcp, struct pace *pace, struct mcp_params *params, __u64 now)
{
	if (now - pace->began_ns < (__u64)(tcp->srtt_us >> 3) * 1000)
		return;
	struct mcp_facts facts = facts_of(tcp, pace, now);
	/* With nothing more to send there is nothing to decide. */
	if (facts.remaining)
		mcp_next(&pace->mcp, params, &facts);
	count_anew(tcp, pace, now);
}

/* Sets window and rate by MCP, if the flow has a deadline that it can meet; else they are DCTCP's to set. */
static __always_inline int goes_by_deadline(struct sock *sk, struct tcp_sock *tcp, struct state *state)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct mcp_params *params = bpf_map_lookup_elem(&weir_mcp, &zero);

	if (!params || !params->payload || !params->base_rtt_ns)
		return 0;
	struct flow *flow = bpf_sk_storage_get(&weir_flows, sk, 0, 0);
	if (!flow || flow->type != DEADLINE)
		return 0;
	struct pace *pace = pace_of(sk, tcp, flow, params, now);
	if (!pace)
		return 0;
	/* The second condition: until all that went before the flow is acknowledged, the unsigned difference is huge. */
	if (tcp->bytes_acked - pace->from >= pace->size && tcp->bytes_acked >= pace->from) {
		/* It is over: what comes without another hint has no deadline, and not its pace. */
		flow->type = KNOWN;
		return 0;
	}
	advance(tcp, pace, params, now);
	/* Twice the window, in whole segments. */
	__u32 window = pace->mcp.window_16 >> 15;
	tcp->snd_cwnd = state->window = state->given = window + 2;
	/* Should DCTCP take over, it counts marks from here on. */
	begin_window(tcp, state);
	state->marks = tcp->delivered_ce;
	if (pace->mcp.gave_up) {
		/* The tagger has it in the class of its size from now on, and DCTCP goes on from here, without a slow start. */
		flow->type = KNOWN;
		state->threshold = state->window;
		return 0;
	}
	sk->sk_pacing_rate = mcp_pacing_rate(&pace->mcp, tcp->mss_cache);
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	return 1;
}

SEC("struct_ops")
void BPF_PROG(weir_karuna_init, struct sock *sk)
{
	dctcp_init(sk);
}

SEC("struct_ops")
void BPF_PROG(weir_karuna_cong_control, struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	struct state *state = state_of(tcp);

	if (!is_ready(sk, tcp, state))
		return;
	if (!goes_by_deadline(sk, tcp, state))
		dctcp_cong_control(sk, ack, flag, sample);
}

SEC("struct_ops")
void BPF_PROG(weir_karuna_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	struct state *state = state_of(tcp);

	dctcp_cwnd_event(sk, event);
	if (!state->begun)
		return;
	if (event == CA_EVENT_TX_START) {
		goes_by_deadline(sk, tcp, state);
	} else if (event == CA_EVENT_ECN_IS_CE || event == CA_EVENT_ECN_NO_CE) {
		/* 2^20 ns are 1.05 ms: near enough, and no division. */
		__u32 now_ms = bpf_ktime_get_ns() >> 20;

		if (now_ms - state->arrived_ms > APART_MS)
			tcp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
		state->arrived_ms = now_ms;
	}
}

SEC("struct_ops")
__u32 BPF_PROG(weir_karuna_ssthresh, struct sock *sk)
{
	return dctcp_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(weir_karuna_undo_cwnd, struct sock *sk)
{
	return dctcp_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops weir_karuna = {
	.init = (void *)weir_karuna_init,
	.cong_control = (void *)weir_karuna_cong_control,
	.cwnd_event = (void *)weir_karuna_cwnd_event,
	.ssthresh = (void *)weir_karuna_ssthresh,
	.undo_cwnd = (void *)weir_karuna_undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "weir_karuna",
};
