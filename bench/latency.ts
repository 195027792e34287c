/**
 * Measures the latency to members over a network in round trips, by running far.ts on the network of far-network.py.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Bench } from './bench.ts';
import type { Row } from './report.ts';

/** The time of a round trip from noria to a member. */
const ROUND_TRIP_MS = 50;
const MAX_OUTPUT_BYTES = 1 << 20;

/**
 * Adds the rows of far.ts to the report. It needs python3 and a kernel that lets users make network namespaces with a
 * TUN device; otherwise it reports why the rows are missing.
 */
export function measureLatency({ report, quick }: Bench): void {
  const { status, stderr } = runFarAway(['true']);
  if (status !== 0) {
    console.error(`no latency over a network: ${stderr?.trim().split('\n').at(-1) ?? 'unshare is missing'}`);
    return;
  }
  const far = runFarAway([process.execPath, pathOf('far.ts'), ...(quick ? ['--quick', 'with login'] : [])]);
  if (far.status !== 0) throw new Error(`far.ts failed: ${far.stderr}`);
  for (const row of JSON.parse(far.stdout) as readonly Row[]) report.add(row);
}

/** Runs a command on the network of far-network.py. */
function runFarAway(command: readonly string[]) {
  const network = ['python3', pathOf('far-network.py'), String(ROUND_TRIP_MS / 2)];
  return spawnSync('unshare', ['--map-root-user', '--net', ...network, ...command], {
    encoding: 'utf8',
    maxBuffer: MAX_OUTPUT_BYTES,
  });
}

function pathOf(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}
