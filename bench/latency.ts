/**
 * Measures the latency to members over a network in round trips, by running far.ts on the network of far-network.py.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Bench } from './bench.ts';
import type { Row } from './report.ts';

/** The time of a round trip from noria to a member. */
const FLIGHT_MS = 50;
const MAX_OUTPUT_BYTES = 1 << 20;

/**
 * Adds the rows of far.ts to the report. It needs python3 and a kernel that lets users make network namespaces with a
 * TUN device; otherwise it reports why the rows are missing.
 */
export function measureLatency({ report, quick }: Bench): void {
  const [network, far] = ['far-network.py', 'far.ts'].map((name) =>
    fileURLToPath(new URL(name, import.meta.url)),
  );
  const command = [
    'python3',
    network,
    FLIGHT_MS / 2,
    process.execPath,
    far,
    ...(quick ? ['--quick', 'with login'] : []),
  ];
  const { status, stdout, stderr } = spawnSync(
    'unshare',
    ['--map-root-user', '--net', ...command.map(String)],
    {
      encoding: 'utf8',
      maxBuffer: MAX_OUTPUT_BYTES,
    },
  );
  if (status !== 0) {
    console.error(`no latency over a network: ${stderr?.trim().split('\n').at(-1) ?? 'unshare is missing'}`);
    return;
  }
  const rows = JSON.parse(stdout) as readonly Row[];
  for (const row of rows) report.add({ ...row, scenario: `${FLIGHT_MS} ms a flight: ${row.scenario}` });
}
