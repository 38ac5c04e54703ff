// SPDX-License-Identifier: Apache-2.0
//
// Gives TCP sockets that processes of a control group make a mark, before anything is sent on them. What the processes set
// themselves afterwards stands.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Apache-2.0";

#define PROTOCOL_TCP 6
#define SOCKET_STREAM 1
#define GO_ON 1

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
