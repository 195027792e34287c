/** The idle time in ms after which the kernel probes a TCP connection. It is shorter than the timeout of common NAT gateways. */
export const TCP_KEEP_ALIVE_MS = 30_000;
