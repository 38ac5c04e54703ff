// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// What congestion controls use of the kernel.
#ifndef WEIR_KERNEL_H
#define WEIR_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The kernel's, which its type information does not have. */
#define TCP_CONG_NEEDS_ECN 2
#define TCP_ECN_OK 1
#define TCP_ECN_DEMAND_CWR 4
#define TCP_INFINITE_SSTHRESH 0x7fffffff
#define FLAG_ECE 0x40 /* the acknowledgement says that something was marked */
#define SOL_TCP 6
#define TCP_CONGESTION 13

enum tcp_ca_event { CA_EVENT_TX_START = 0, CA_EVENT_ECN_NO_CE = 4, CA_EVENT_ECN_IS_CE = 5 };
enum tcp_ca_state { TCP_CA_Recovery = 3, TCP_CA_Loss = 4 };
enum inet_csk_ack_state_t { ICSK_ACK_TIMER = 2, ICSK_ACK_NOW = 16 };

/* What is used of the kernel's structures; where it lies is looked up when the program is loaded. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct netns_ipv4 {
	__u8 sysctl_tcp_slow_start_after_idle;
};
struct net {
	struct netns_ipv4 ipv4;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct sock_common {
	possible_net_t skc_net;
};
struct sock {
	struct sock_common __sk_common;
	__u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
};
struct inet_connection_sock {
	struct {
		__u8 pending;
	} icsk_ack;
	__u32 icsk_rto;
	__u8 icsk_ca_state : 5; /* read by BPF_CORE_READ_BITFIELD alone */
	__u64 icsk_ca_priv[13];
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_acked;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 mss_cache;
	__u32 srtt_us; /* eight times the smoothed round trip */
	__u32 lsndtime;
	__u8 ecn_flags;
};
struct rate_sample {
	__u32 acked_sacked;
};
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
};
#pragma clang attribute pop

#endif
