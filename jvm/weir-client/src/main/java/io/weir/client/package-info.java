/**
 * Client of Weir: registers coflows, puts blocks at the agent of this host, and gets them from the agents that hold
 * them.
 *
 * <p>Nothing here is encrypted or authenticated: use it inside a network that you trust.
 */
package io.weir.client;
