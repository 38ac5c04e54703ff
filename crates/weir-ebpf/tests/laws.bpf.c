// SPDX-License-Identifier: Apache-2.0
//
// Runs the laws of MCP and DCTCP on facts that a test gives: one call, one window.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "../src/bpf/alpha.h"
#include "../src/bpf/mcp.h"

char LICENSE[] SEC("license") = "Apache-2.0";

struct window {
	struct mcp_params params;
	struct mcp_facts facts;
	struct mcp mcp;
	__u64 pacing_rate;
	__u32 segment;
	__u32 begins; /* the first window of a flow */
};

SEC("syscall")
int weir_mcp_law(struct window *window)
{
	/* The verifier follows a copy more easily than the context. */
	struct window now = *window;

	if (now.begins)
		mcp_start(&now.mcp, &now.params, &now.facts);
	else
		mcp_next(&now.mcp, &now.params, &now.facts);
	window->mcp = now.mcp;
	window->pacing_rate = mcp_pacing_rate(&now.mcp, now.segment);
	return 0;
}

struct round {
	__u32 alpha;
	__u32 acked;
	__u32 marked;
};

SEC("syscall")
int weir_dctcp_law(struct round *round)
{
	round->alpha = next_alpha(round->alpha, round->acked, round->marked);
	return 0;
}
