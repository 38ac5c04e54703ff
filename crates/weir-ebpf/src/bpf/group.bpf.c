// SPDX-License-Identifier: Apache-2.0
//
// Gives TCP sockets that processes of a control group make a mark, and a congestion control if there is to be one, before
// anything is sent on them. What the processes set themselves afterwards stands, save for a control that is set before they connect.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Apache-2.0";

#define PROTOCOL_TCP 6
#define SOCKET_STREAM 1
#define GO_ON 1
#define SOL_TCP 6
#define TCP_CONGESTION 13
#define NAME_BYTES 16

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} weir_mark SEC(".maps");

SEC("cgroup/sock_create")
int weir_group(struct bpf_sock *socket)
{
	__u32 zero = 0;
	__u32 *mark = bpf_map_lookup_elem(&weir_mark, &zero);

	if (mark && socket->type == SOCKET_STREAM && socket->protocol == PROTOCOL_TCP)
		socket->mark = *mark;
	return GO_ON;
}

/* The name of a congestion control, filled up with zeros. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, char[NAME_BYTES]);
} weir_control SEC(".maps");

/* How many sockets did not get it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} weir_without SEC(".maps");

/* Before a socket connects or listens: ends agree upon ECN in their first packets, by the controls that they have then. What a
 * socket accepts has its control. */
static __always_inline void control(void *context)
{
	__u32 zero = 0;
	char *name = bpf_map_lookup_elem(&weir_control, &zero);
	__u64 *without = bpf_map_lookup_elem(&weir_without, &zero);

	if (name && without && bpf_setsockopt(context, SOL_TCP, TCP_CONGESTION, name, NAME_BYTES))
		__sync_fetch_and_add(without, 1);
}

SEC("cgroup/connect4")
int weir_connect4(struct bpf_sock_addr *address)
{
	if (address->type == SOCKET_STREAM && address->protocol == PROTOCOL_TCP)
		control(address);
	return GO_ON;
}

SEC("cgroup/connect6")
int weir_connect6(struct bpf_sock_addr *address)
{
	if (address->type == SOCKET_STREAM && address->protocol == PROTOCOL_TCP)
		control(address);
	return GO_ON;
}

SEC("sockops")
int weir_listen(struct bpf_sock_ops *call)
{
	if (call->op == BPF_SOCK_OPS_TCP_LISTEN_CB)
		control(call);
	return GO_ON;
}
