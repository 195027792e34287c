/** Idle time after which the kernel probes a TCP connection: shorter than the timeout of common NAT gateways. */
export const TCP_KEEP_ALIVE_MS = 30_000;
