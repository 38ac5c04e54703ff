// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) for congestion controls of the kernel's TCP.
//
// A sender estimates which share of its segments is marked (alpha), a window at a time, and shrinks its window by half of that
// share where TCP would halve it. Between marks, and after losses, it is Reno. A receiver says with each acknowledgement
// whether what it acknowledges was marked (section 3.2), where TCP would repeat a mark until the sender has heard of it. The
// law is `Dctcp` of weir-packet.
//
// All that changes the window is in `cong_control`, and is decided by the socket's own counts. What other callbacks return is not
// used, and nothing depends on each of them being run: on Linux 6.18 as it was measured, one of them is passed over now and
// then, and the kernel takes what lay on its stack for the answer. A threshold that was such an answer gave one flow a window of
// millions of segments, and the other one nothing.
//
// State is in the socket. Windows are in segments, as the kernel counts them: what is handed down or comes up in one piece of
// up to 64 kB (GSO, GRO) counts as its segments.
#ifndef WEIR_DCTCP_H
#define WEIR_DCTCP_H

#include "alpha.h"
#include "kernel.h"

#define LEAST_WINDOW 2U
/* Segments after a long pause (RFC 6928). */
#define RESTART_WINDOW 10U

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

/* Of a socket, in the kernel's room for congestion controls, which is zero at first. */
struct state {
	__u8 begun;
	__u8 reduced; /* there is a `reduced_at` */
	__u8 lost;    /* how the kernel repairs a loss for which the window was reduced already; 0: none */
	__u8 asked;   /* the kernel has asked for a threshold */
	__u8 ce;      /* of a receiver: whether the last packet was marked */
	__u32 received;     /* of a receiver: what was to come next when that had been received */
	__u32 window;
	__u32 given;        /* what the kernel was told to have for a window, which is less in recovery */
	__u32 threshold;
	__u32 before;       /* the window before it was last reduced */
	__u32 reduced_at;   /* what was to be sent next then: marks and losses of what is before it are no news */
	__u32 alpha;
	__u32 window_end;   /* the window of alpha is over when this is acknowledged */
	__u32 delivered;    /* the socket's counts when it began */
	__u32 delivered_ce;
	__u32 marks;        /* the socket's count at the last acknowledgement */
	__u32 arrived_ms;   /* of a receiver, where it acknowledges by that: when the last packet came, in about ms */
};

static __always_inline struct state *state_of(struct tcp_sock *tcp)
{
	return (struct state *)tcp->inet_conn.icsk_ca_priv;
}

static __always_inline __u32 at_least(__u32 window)
{
	return window < LEAST_WINDOW ? LEAST_WINDOW : window;
}

static __always_inline void begin_window(struct tcp_sock *tcp, struct state *state)
{
	state->window_end = tcp->snd_nxt;
	state->delivered = tcp->delivered;
	state->delivered_ce = tcp->delivered_ce;
}

/* Whether the socket is under this control, which begins where it has not. */
static __always_inline int is_ready(struct sock *sk, struct tcp_sock *tcp, struct state *state)
{
	char reno[] = "reno";

	if (state->begun)
		return 1;
	/* Its packets would be marked in vain: without ECN the other end says nothing of it. */
	if (!(tcp->ecn_flags & TCP_ECN_OK)) {
		bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno));
		return 0;
	}
	state->begun = 1;
	state->received = tcp->rcv_nxt;
	state->window = state->given = tcp->snd_cwnd;
	state->threshold = TCP_INFINITE_SSTHRESH;
	state->alpha = ALPHA_ONE; /* section 3.3 */
	state->marks = tcp->delivered_ce;
	begin_window(tcp, state);
	return 1;
}

static __always_inline void dctcp_init(struct sock *sk)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;

	is_ready(sk, tcp, state_of(tcp));
}

/* Once a window. */
static __always_inline void estimate(struct tcp_sock *tcp, struct state *state)
{
	/* Sequence numbers wrap: the sign of their difference says which one is later. */
	if ((__s32)(tcp->snd_una - state->window_end) < 0)
		return;
	state->alpha = next_alpha(state->alpha, tcp->delivered - state->delivered,
				  tcp->delivered_ce - state->delivered_ce);
	begin_window(tcp, state);
}

static __always_inline void reduce(struct tcp_sock *tcp, struct state *state, __u32 before, __u32 window)
{
	state->before = before;
	state->threshold = at_least(window);
	state->window = state->threshold;
	state->reduced = 1;
	state->reduced_at = tcp->snd_nxt;
}

/* From this rate the kernel takes how large pieces it sends, and how much of a flow waits in the host. It does not set it for a
 * control that has all of the window to itself. The factors are the kernel's. */
static __always_inline void set_rate(struct sock *sk, struct tcp_sock *tcp)
{
	/* srtt_us is eight times the round trip in microseconds: a factor of 8 * 10^6 gives bytes per second. */
	__u64 rate = (__u64)tcp->mss_cache * tcp->snd_cwnd * 8000000;

	rate = tcp->snd_cwnd < tcp->snd_ssthresh / 2 ? rate * 2 : rate + rate / 5;
	if (tcp->srtt_us)
		rate /= tcp->srtt_us;
	sk->sk_pacing_rate = rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
}

/*
 * The window while the kernel sends again what was lost: no more than what has left the network, or all of a window that is
 * still too large would be lost again and again (packet conservation, as the bound of RFC 6937). What was lost first is
 * sent in any case.
 */
static __always_inline __u32 recover(struct tcp_sock *tcp, struct state *state, const struct rate_sample *sample,
				     __u32 enters)
{
	__u32 under_way = tcp->packets_out - tcp->sacked_out - tcp->lost_out + tcp->retrans_out;
	__u32 may = under_way + sample->acked_sacked;

	if (may > state->window)
		may = state->window;
	if (enters && may <= under_way)
		may = under_way + 1;
	return may ? may : 1;
}

/* With each acknowledgement that brings something. */
static __always_inline void dctcp_cong_control(struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	struct state *state = state_of(tcp);
	__u32 repair = BPF_CORE_READ_BITFIELD(&tcp->inet_conn, icsk_ca_state);
	__u32 enters = 0;

	if (!is_ready(sk, tcp, state))
		return;
	estimate(tcp, state);
	__u32 marked = tcp->delivered_ce != state->marks;
	state->marks = tcp->delivered_ce;
	__u32 before = state->window;
	/* The kernel makes a window smaller, after a timeout. It makes none larger but by `undo`, which says so here. */
	if (tcp->snd_cwnd < state->given)
		state->window = tcp->snd_cwnd;
	__u32 reacts = state->reduced && (__s32)(tcp->snd_una - state->reduced_at) <= 0;
	__u32 grows = 0;

	if (repair < TCP_CA_Recovery)
		state->lost = 0;
	if (repair >= TCP_CA_Recovery && repair > state->lost) {
		__u32 window = state->window;
		/* Losses halve the window (section 3.5): that of before, where it was just reduced for marks. */
		if (!state->lost)
			reduce(tcp, state, reacts ? state->before : before, (reacts ? state->before : before) / 2);
		if (repair == TCP_CA_Loss) {
			/* The kernel's, of one segment; it grows at once. */
			state->window = window;
			state->reduced = 0;
		} else {
			enters = 1;
		}
		state->lost = repair;
	} else if (marked && !reacts) {
		__u32 less = (__u64)state->window * state->alpha >> (ALPHA_BITS + 1);
		reduce(tcp, state, state->window, state->window - less); /* section 3.4 */
	} else if (state->asked && !(flag & FLAG_ECE) && !reacts && repair < TCP_CA_Recovery) {
		/* A probe has repaired the loss of a flow's tail, or the host has no room for what it sends. */
		reduce(tcp, state, state->window, state->window / 2);
	} else {
		grows = !reacts && repair != TCP_CA_Recovery;
	}
	state->asked = 0;
	tcp->snd_ssthresh = state->threshold;
	tcp->snd_cwnd = repair == TCP_CA_Recovery ? recover(tcp, state, sample, enters) : state->window;
	if (grows && sample->acked_sacked) {
		tcp_reno_cong_avoid(sk, ack, sample->acked_sacked);
		state->window = tcp->snd_cwnd;
	}
	state->given = tcp->snd_cwnd;
	set_rate(sk, tcp);
}

/*
 * A packet was received, marked or not. All that one acknowledgement says is of one kind: what was received before and is not
 * yet acknowledged goes first where the kind changes, and then the new one is said at once (section 3.2).
 */
static __always_inline void echo(struct tcp_sock *tcp, struct state *state, __u8 ce)
{
	__u8 others = tcp->ecn_flags & ~TCP_ECN_DEMAND_CWR;

	if (ce != state->ce) {
		if (tcp->inet_conn.icsk_ack.pending & ICSK_ACK_TIMER) {
			tcp->ecn_flags = state->ce ? others | TCP_ECN_DEMAND_CWR : others;
			bpf_tcp_send_ack(tcp, state->received);
		}
		tcp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
		state->ce = ce;
	}
	state->received = tcp->rcv_nxt;
	tcp->ecn_flags = ce ? others | TCP_ECN_DEMAND_CWR : others;
}

/* A flow sends again of which nothing was under way: after a retransmission timeout without sending its window says nothing of
 * the network any more (RFC 5681, section 4.1), if the system goes by that. */
static __always_inline void restart(struct sock *sk, struct tcp_sock *tcp, struct state *state)
{
	__u32 pause = (__u32)bpf_jiffies64() - tcp->lsndtime;

	if (!sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_slow_start_after_idle)
		return;
	if ((__s32)(pause - tcp->inet_conn.icsk_rto) <= 0 || tcp->snd_cwnd <= RESTART_WINDOW)
		return;
	if (state->window > RESTART_WINDOW) {
		/* Slow start goes to three quarters of the window of before the pause, as the kernel's tcp_current_ssthresh has it. */
		if (state->threshold < state->window * 3 / 4)
			state->threshold = state->window * 3 / 4;
		state->window = RESTART_WINDOW;
	}
	tcp->snd_cwnd = state->given = state->window;
	begin_window(tcp, state);
}

static __always_inline void dctcp_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sk;
	struct state *state = state_of(tcp);

	if (event == CA_EVENT_ECN_IS_CE || event == CA_EVENT_ECN_NO_CE) {
		/* A socket that sends nothing has no other callback, should that at its begin have been passed over. */
		if (is_ready(sk, tcp, state))
			echo(tcp, state, event == CA_EVENT_ECN_IS_CE);
	} else if (event == CA_EVENT_TX_START && state->begun) {
		restart(sk, tcp, state);
	}
}

/* Asked where the kernel would reduce a window; it is done in `cong_control`. */
static __always_inline __u32 dctcp_ssthresh(struct sock *sk)
{
	struct state *state = state_of((struct tcp_sock *)sk);

	state->asked = 1;
	return at_least(state->window / 2);
}

/* The loss was none: packets came in another order, or late. */
static __always_inline __u32 dctcp_undo_cwnd(struct sock *sk)
{
	struct state *state = state_of((struct tcp_sock *)sk);

	if (state->window < state->before)
		state->window = state->before;
	if (state->threshold < state->before)
		state->threshold = state->before;
	return at_least(state->window);
}

#endif
