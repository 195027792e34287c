/** When the kernel begins to probe a silent TCP connection: shorter than what NATs on the way forget it after. */
export const TCP_KEEP_ALIVE_MS = 30_000;
