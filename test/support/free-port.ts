/** Finds ports for tests that need a fixed port: in a configuration file, across a restart, or to refuse connections. */
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** The first port. Browsers and `fetch` refuse to connect to port 10080. */
const FIRST = 10_081;
/**
 * The end of the ports. The system gives higher ports to outgoing connections and to servers on port 0, and other tests open
 * thousands of them.
 */
const END = Math.max(FIRST + 4_000, Math.min(32_000, firstPortOfSystem()));
/** The maximum number of processes that run test files at the same time. */
const MOST_PROCESSES = 16;
const SHARE = Math.floor((END - FIRST) / MOST_PROCESSES);
/**
 * The first port of this test process. Each test process has its own ports, so that no other process takes a port between its
 * choice and its use.
 */
const SHARE_FIRST =
  FIRST + ((Number(process.env['VITEST_POOL_ID'] ?? process.pid) - 1) % MOST_PROCESSES) * SHARE;

/** The offset of the next port. Its first value differs between runs of the tests at the same time. */
let offset = (process.pid * 97) % SHARE;

/** Returns a port on which nothing listened a moment ago. No other process of this run of the tests gets it. */
export function freePort(): Promise<number> {
  return freePorts(1);
}

/** Returns the first of `count` consecutive ports of that kind. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    if (offset + count > SHARE) offset = 0;
    const first = SHARE_FIRST + offset;
    offset += count;
    const ports = Array.from({ length: count }, (_, index) => first + index);
    const areFree = await Promise.all(ports.map(isFree));
    if (areFree.every(Boolean)) return first;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
    return true;
  } catch {
    return false; // handled: another program listens on the port
  } finally {
    server.close();
  }
}

function firstPortOfSystem(): number {
  const file = '/proc/sys/net/ipv4/ip_local_port_range';
  return existsSync(file) ? Number.parseInt(readFileSync(file, 'utf8'), 10) : 32_768;
}
