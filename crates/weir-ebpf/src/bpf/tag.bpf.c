// SPDX-License-Identifier: Apache-2.0
//
// Sets the DSCP of packets of TCP sockets, by the class that their flow has now. The law is `ClassLaw` of weir-endhost; tests
// compare both packet by packet. Runs for each packet (up to 64 kB, before it is cut into segments) that leaves an interface.
//
// The state of a flow is kept with its socket and goes with it. Its bytes are not counted here: where a packet begins in
// its flow follows from the socket's 64-bit count of acknowledged bytes and the packet's sequence number, so that what is
// sent again has the place that it had, and nothing wraps at 4 GiB.
//
// Helpers that take a GPL-compatible program are not used.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "flow.h"

char LICENSE[] SEC("license") = "Apache-2.0";

/* Go on with the next program, or out. */
#define TCX_NEXT (-1)

#define ETHERNET_BYTES 14
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define IPV6_HOP_BY_HOP 0
#define PROTOCOL_TCP 6
#define SOCKET_STREAM 1
#define ECN_BITS 3

#define CLASSES 8
#define THRESHOLDS (CLASSES - 1)
/* After the counters of classes: packets that should have had a class, and could not be written. */
#define NOT_WRITTEN CLASSES

/* As `Config::to_bytes` writes it. */
struct settings {
	__u64 demotion[THRESHOLDS];  /* bytes sent; those not in use are the largest number */
	__u64 splitting[THRESHOLDS]; /* bytes of the flow; likewise */
	__u64 idle_ns;               /* a pause after which a flow of unknown size begins anew; 0: never */
	__u32 best;                  /* the first class of flows without a deadline */
	__u32 tags_all;              /* sockets without a hint are of unknown size; else they are left alone */
	__u32 ages_after;            /* timeouts in a row; 0: never */
	__u32 reads_marks;           /* marks of sockets are hints */
	__u8 dscp[CLASSES];
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} weir_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLASSES + 1);
	__type(key, __u32);
	__type(value, struct counter);
} weir_counters SEC(".maps");

/* Where things are in a packet. */
struct place {
	__u32 payload_bytes;
	__u32 sequence;
	__u8 is_v6;
};

/* The TCP header at `at`, if it is of the socket; what is no Ethernet frame is not taken for one by chance. */
static __always_inline int read_tcp(struct __sk_buff *skb, __u32 at, __u32 port, struct place *place)
{
	struct {
		__be16 source, destination;
		__be32 sequence, acknowledged;
		__u8 words, flags;
	} tcp;

	if (bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)) || bpf_ntohs(tcp.source) != port)
		return 0;
	__u32 end = at + (tcp.words >> 4) * 4;
	place->payload_bytes = skb->len > end ? skb->len - end : 0;
	place->sequence = bpf_ntohl(tcp.sequence);
	return 1;
}

static __always_inline int read_packet(struct __sk_buff *skb, __u32 port, struct place *place)
{
	__u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u8 *ip = data + ETHERNET_BYTES;
	__u32 at = ETHERNET_BYTES;

	if (ip + 20 > end)
		return 0;
	__u16 type = data[12] << 8 | data[13];
	if (type == ETHERTYPE_IPV4 && ip[0] >> 4 == 4 && ip[9] == PROTOCOL_TCP) {
		place->is_v6 = 0;
		return read_tcp(skb, at + (ip[0] & 15) * 4, port, place);
	}
	if (type != ETHERTYPE_IPV6 || ip[0] >> 4 != 6 || ip + 42 > end)
		return 0;
	place->is_v6 = 1;
	at += 40;
	/* Packets above 64 kB have such a header until they are cut into segments. */
	if (ip[6] == IPV6_HOP_BY_HOP && ip[40] == PROTOCOL_TCP)
		/* RFC 8200, section 4.3: the header's length counts in 8 bytes, without the first 8. */
		return read_tcp(skb, at + (ip[41] + 1) * 8, port, place);
	return ip[6] == PROTOCOL_TCP ? read_tcp(skb, at, port, place) : 0;
}

static __always_inline __u32 count_reached(const __u64 *thresholds, __u64 bytes)
{
	__u32 reached = 0;

#pragma unroll
	for (int i = 0; i < THRESHOLDS; i++)
		reached += bytes >= thresholds[i];
	return reached;
}

/* After so many timeouts in a row type 3 is put first again, and types 1 and 2 rise by a class. */
static __always_inline void age(struct flow *flow, const struct settings *settings, struct bpf_tcp_sock *tcp)
{
	__u32 timeouts = tcp->icsk_retransmits;

	if (!timeouts) {
		flow->aged_at = 0;
	} else if (settings->ages_after && timeouts % settings->ages_after == 0 && timeouts != flow->aged_at) {
		flow->aged_at = timeouts;
		if (flow->type == UNKNOWN)
			/* What was sent so far no longer counts: the flow is in the best class again. */
			flow->from = tcp->bytes_acked + (tcp->snd_nxt - tcp->snd_una);
		else if (flow->raised < CLASSES)
			flow->raised++;
	}
}

static __always_inline __u32 class_of(struct flow *flow, const struct settings *settings, __u64 offset, __u64 now)
{
	if (flow->type == UNKNOWN) {
		__u64 sent = offset > flow->from ? offset - flow->from : 0;
		return settings->best + count_reached(settings->demotion, sent);
	}
	if (flow->type == DEADLINE && now <= flow->deadline_ns)
		return 0;
	if (flow->type == PLACED)
		return flow->size;
	/* A flow goes above the thresholds that it is larger than, so it may be as large as one. */
	__u32 below = flow->size ? count_reached(settings->splitting, flow->size - 1) : 0;
	return settings->best + (below > flow->raised ? below - flow->raised : 0);
}

static __always_inline int write_dscp(struct __sk_buff *skb, const struct place *place, __u8 dscp)
{
	__u8 old[2], new[2];

	if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, old, 2))
		return -1;
	if (place->is_v6) {
		/* IPv6: version (4 bits), traffic class (8), flow label. The DSCP lies across both bytes; ECN bits and label stay. */
		new[0] = (old[0] & 0xf0) | dscp >> 2;
		new[1] = dscp << 6 | (old[1] & 0x3f);
	} else {
		new[0] = old[0];
		new[1] = dscp << 2 | (old[1] & ECN_BITS);
	}
	if (new[0] == old[0] && new[1] == old[1])
		return 0;
	/* Only IPv4 has a checksum of its header, and TCP's does not cover the octet. */
	if (!place->is_v6) {
		__be16 from = bpf_htons(old[0] << 8 | old[1]), to = bpf_htons(new[0] << 8 | new[1]);
		if (bpf_l3_csum_replace(skb, ETHERNET_BYTES + 10, from, to, 2))
			return -1;
	}
	return bpf_skb_store_bytes(skb, ETHERNET_BYTES, new, 2, 0);
}

static __always_inline void count(struct __sk_buff *skb, __u32 which, const struct place *place)
{
	struct counter *counter = bpf_map_lookup_elem(&weir_counters, &which);

	if (!counter)
		return;
	/* As packets are on the link: a piece of several segments is cut into them later. */
	counter->packets += skb->gso_segs ? skb->gso_segs : 1;
	counter->bytes += place->payload_bytes;
}

/* The state of the socket's flow; none if the socket is to be left alone. */
static __always_inline struct flow *find_flow(struct bpf_sock *socket, const struct settings *settings, __u64 offset,
					      __u64 now)
{
	__u32 mark = settings->reads_marks && is_hint(socket->mark) ? socket->mark : 0;
	struct flow *flow = bpf_sk_storage_get(&weir_flows, socket, 0, 0);
	/* The SYN of an end that connects counts as a byte that was acknowledged. */
	struct flow begun = { .type = UNKNOWN, .from = offset <= 1 ? offset : 0 };

	if (!flow && (settings->tags_all || mark))
		flow = bpf_sk_storage_get(&weir_flows, socket, &begun, BPF_SK_STORAGE_GET_F_CREATE);
	if (flow && mark && mark != flow->mark)
		take_mark(flow, mark, now);
	return flow;
}

SEC("tcx/egress")
int weir_tag(struct __sk_buff *skb)
{
	struct place place = {};
	__u32 zero = 0;

	/* What came in somewhere was not sent here. Linux 6.18 takes its socket off it; a kernel that leaves it, as that of a
	 * container's, shall make no difference. */
	if (!skb->sk || skb->ingress_ifindex)
		return TCX_NEXT;
	struct bpf_sock *socket = bpf_sk_fullsock(skb->sk);
	if (!socket || socket->type != SOCKET_STREAM || socket->protocol != PROTOCOL_TCP || socket->state == BPF_TCP_LISTEN)
		return TCX_NEXT;
	struct bpf_tcp_sock *tcp = bpf_tcp_sock(socket);
	struct settings *settings = bpf_map_lookup_elem(&weir_settings, &zero);
	if (!tcp || !settings || !read_packet(skb, socket->src_port, &place))
		return TCX_NEXT;

	/* Signed 32 bits: sequence numbers wrap, and what is sent again may begin before snd_una. */
	__s64 offset = tcp->bytes_acked + (__s32)(place.sequence - tcp->snd_una);
	if (offset < 0)
		offset = 0;
	__u64 now = bpf_ktime_get_ns();
	struct flow *flow = find_flow(socket, settings, offset, now);
	if (!flow)
		return TCX_NEXT;
	__u64 pause = now - flow->last_ns;
	if (flow->from == NOT_BEGUN ||
	    (settings->idle_ns && flow->type == UNKNOWN && flow->last_ns && pause > settings->idle_ns))
		flow->from = offset;
	else if (!flow->last_ns && offset == 1 && flow->from == 0)
		flow->from = 1; /* it began with the SYN, and nothing of it was sent yet */
	if (place.payload_bytes)
		flow->last_ns = now;
	age(flow, settings, tcp);

	__u32 class = class_of(flow, settings, offset, now);
	if (class >= CLASSES)
		class = CLASSES - 1;
	int failed = write_dscp(skb, &place, settings->dscp[class]);
	count(skb, failed ? NOT_WRITTEN : class, &place);
	return TCX_NEXT;
}
