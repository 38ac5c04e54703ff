// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//
// Marks packets that are capable of ECN where the queue that they are about to enter has K bytes waiting. Runs for each packet
// that leaves a port of a switch, before the port's HTB has it. The kernel offers no queueing discipline that marks on every
// machine, but its leaves count what waits in them. This program reads that count: from the packet to its device, the device's
// HTB, the class in HTB's table of classes, and the leaf of the class.
//
// A packet here may be many frames that are cut later (GSO). A switch sees each of them, and its queue grows with the first
// while the last are yet to come. So a packet of n frames of which m would find K bytes waiting is marked with probability
// m / n. Marked by what the first frame finds alone, a flow that sends 64 kB at once would hardly be marked by its own
// queue, and a flow of small packets beside it would get all marks.
//
// The kernel lets programs under a GPL-compatible licence alone read its own structures; therefore the other licences.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Go on with the next program, or out. */
#define TCX_NEXT (-1)

#define ETHERNET_BYTES 14
#define ETHERTYPE_IPV4 0x0800
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define ECN_BITS 3
#define ECN_CE 3

#define CLASSES 8
#define DSCPS 64
/* In the table of DSCPs: such packets are in no queue for data. */
#define NO_CLASS 0xff
/* Rows of the table of counters after those of classes. */
#define OTHERS CLASSES
#define NOT_FOUND (CLASSES + 1)
#define ROWS (CLASSES + 2)
/* Steps along the chain of a bucket. HTB doubles its table before it has as many classes as buckets; a class behind a longer chain
 * counts as not found. */
#define CHAIN 16
#define HTB_NAME 0x00627468 /* "htb" and the zero after it, as bytes of a little-endian number */

/* What is used of the kernel's structures; where it lies is looked up when the program is loaded. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};
struct Qdisc_class_hash {
	struct hlist_head *hash;
	unsigned int hashmask;
};
struct Qdisc_class_common {
	__u32 classid;
	struct hlist_node hnode;
};
struct Qdisc_ops {
	char id[16];
};
struct gnet_stats_queue {
	__u32 backlog;
};
struct Qdisc {
	struct Qdisc_ops *ops;
	struct gnet_stats_queue qstats;
	long privdata[0];
};
struct htb_sched {
	struct Qdisc_class_hash clhash;
};
struct htb_class_leaf {
	struct Qdisc *q;
};
struct htb_class {
	struct Qdisc_class_common common;
	int level;
	struct htb_class_leaf leaf;
};
struct net_device {
	struct Qdisc *qdisc;
};
struct sk_buff {
	struct net_device *dev;
};
#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *context) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

#define AS(type, object) ((struct type *)bpf_rdonly_cast(object, bpf_core_type_id_kernel(struct type)))

/* As `Marking::to_bytes` writes it. */
struct settings {
	__be32 control;            /* what this address sends or gets is not data; 0: none */
	__u32 thresholds[CLASSES]; /* bytes waiting from which on packets are marked */
	__u32 leaves[CLASSES];     /* HTB's classes */
	__u8 classes[DSCPS];
};

struct counter {
	__u64 seen;
	__u64 marked;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} weir_marking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROWS);
	__type(key, __u32);
	__type(value, struct counter);
} weir_marks SEC(".maps");

/* The class of HTB at the root of the device; none if there is no such class, or another discipline. */
static __always_inline struct htb_class *find_class(struct __sk_buff *context, __u32 id)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(context);
	struct Qdisc *root = skb->dev->qdisc;
	struct Qdisc_ops *ops = root->ops;
	__u32 name = 0;

	if (bpf_probe_read_kernel(&name, sizeof(name), &ops->id) || name != HTB_NAME)
		return 0;
	struct htb_sched *htb = AS(htb_sched, &root->privdata);
	/* The kernel's hash of a class. */
	__u32 hash = id ^ id >> 8;
	hash = (hash ^ hash >> 4) & htb->clhash.hashmask;
	struct hlist_node *node = 0;
	void *bucket = (void *)htb->clhash.hash + hash * bpf_core_type_size(struct hlist_head);
	if (bpf_probe_read_kernel(&node, sizeof(node), bucket))
		return 0;
	for (int i = 0; i < CHAIN && node; i++) {
		void *at = (void *)node - bpf_core_field_offset(struct htb_class, common.hnode);
		struct htb_class *class = AS(htb_class, at);
		if (class->common.classid == id)
			return class;
		node = AS(hlist_node, node)->next;
	}
	return 0;
}

/* Bytes that wait in a leaf; negative if there is no such leaf. */
static __always_inline __s64 waiting_in(struct __sk_buff *context, __u32 id)
{
	struct htb_class *class = find_class(context, id);

	/* Only a leaf has a queue. The kernel keeps other things of inner classes in the same memory (a union). */
	if (!class || class->level)
		return -1;
	struct Qdisc *queue = class->leaf.q;
	return queue ? queue->qstats.backlog : -1;
}

/* The class of a packet by its DSCP; NO_CLASS if its port has it in no queue for data. */
static __always_inline __u8 class_of(struct __sk_buff *skb, const struct settings *settings, __u8 *ecn)
{
	struct {
		__u8 version, octet, before[7], protocol, checksum[2];
		__be32 source, destination;
	} ip;

	if (skb->protocol != bpf_htons(ETHERTYPE_IPV4) || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
		return NO_CLASS;
	if (ip.protocol != PROTOCOL_TCP && ip.protocol != PROTOCOL_UDP)
		return NO_CLASS;
	if (settings->control && (ip.source == settings->control || ip.destination == settings->control))
		return NO_CLASS;
	*ecn = ip.octet & ECN_BITS;
	return settings->classes[ip.octet >> 2];
}

/* How many of the packet's frames would find the threshold reached. */
static __always_inline __u32 above(__u32 threshold, __u64 waiting, __u32 bytes, __u32 frames)
{
	if (waiting >= threshold)
		return frames;
	/* Frame j finds `waiting` and j frames before it. */
	/* Rounded up, to the first frame that finds the threshold reached; in 64 bits, as `waiting` is. */
	__u64 first = ((threshold - waiting) * frames + bytes - 1) / (bytes ? bytes : 1);
	return first < frames ? frames - first : 0;
}

static __always_inline void count(__u32 row, __u32 frames, __u32 marked)
{
	struct counter *counter = bpf_map_lookup_elem(&weir_marks, &row);

	if (!counter)
		return;
	counter->seen += frames;
	counter->marked += marked;
}

SEC("tcx/egress")
int weir_mark(struct __sk_buff *skb)
{
	__u32 zero = 0, frames = skb->gso_segs ? skb->gso_segs : 1, marked = 0;
	struct settings *settings = bpf_map_lookup_elem(&weir_marking, &zero);
	__u8 ecn = 0;

	if (!settings)
		return TCX_NEXT;
	__u32 class = class_of(skb, settings, &ecn);
	if (class >= CLASSES) {
		count(OTHERS, frames, 0);
		return TCX_NEXT;
	}
	__s64 waiting = waiting_in(skb, settings->leaves[class]);
	if (waiting < 0) {
		count(NOT_FOUND, frames, 0);
		return TCX_NEXT;
	}
	/* What is not capable of ECN is left to the limit of the queue, and what is marked already needs no more. */
	if (ecn && ecn != ECN_CE) {
		__u32 full = above(settings->thresholds[class], waiting, skb->len, frames);
		if (full && bpf_get_prandom_u32() % frames < full && bpf_skb_ecn_set_ce(skb))
			marked = frames;
	}
	count(class, frames, marked);
	return TCX_NEXT;
}

/* Run once before the other is attached, on a packet of no content: bit k says that there is a leaf for class k. */
SEC("tc")
int weir_mark_probe(struct __sk_buff *skb)
{
	__u32 zero = 0, found = 0;
	struct settings *settings = bpf_map_lookup_elem(&weir_marking, &zero);

	if (!settings)
		return 0;
#pragma unroll
	for (int i = 0; i < CLASSES; i++)
		found |= (waiting_in(skb, settings->leaves[i]) >= 0) << i;
	return found;
}
