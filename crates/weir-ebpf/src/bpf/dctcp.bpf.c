// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// DCTCP as a congestion control of the kernel's TCP.
//
// The kernel lets programs under a GPL-compatible licence alone be congestion controls; therefore the other licences.
#include "dctcp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("struct_ops")
void BPF_PROG(weir_dctcp_init, struct sock *sk)
{
	dctcp_init(sk);
}

SEC("struct_ops")
void BPF_PROG(weir_dctcp_cong_control, struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample)
{
	dctcp_cong_control(sk, ack, flag, sample);
}

SEC("struct_ops")
void BPF_PROG(weir_dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	dctcp_cwnd_event(sk, event);
}

SEC("struct_ops")
__u32 BPF_PROG(weir_dctcp_ssthresh, struct sock *sk)
{
	return dctcp_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(weir_dctcp_undo_cwnd, struct sock *sk)
{
	return dctcp_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops weir_dctcp = {
	.init = (void *)weir_dctcp_init,
	.cong_control = (void *)weir_dctcp_cong_control,
	.cwnd_event = (void *)weir_dctcp_cwnd_event,
	.ssthresh = (void *)weir_dctcp_ssthresh,
	.undo_cwnd = (void *)weir_dctcp_undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "weir_dctcp",
};
