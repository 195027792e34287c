/**
 * Runs one prepared suite through a noria on a sandbox, and prints the result as JSON. `main.ts` starts it in a network namespace
 * that has loopback alone: the ports that suites expect are free there, and nothing reaches another machine.
 *
 *   node run-suite.ts NAME FOLDER PYTHON MODULES
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { parseConfig } from '../../src/config/load.ts';
import { createLog } from '../../src/core/log.ts';
import { openAll } from '../../src/core/ownership.ts';
import { startDaemon } from '../../src/daemon/daemon.ts';
import { openSandbox } from '../../src/sandbox/sandbox.ts';
import { until } from '../support/until.ts';
import { resultsFile } from './fetch.ts';
import { readGoEvents, readJunit } from './results.ts';
import type { Place, Suite, SuiteResult } from './suite.ts';
import { SUITES } from './suites.ts';

/** The number of members of each source. */
const MEMBERS = 8;
const LIFETIME_MS = 3_600_000;
/** The delay of each dial, the same as in python-socks's own proxy: python-socks tests short timeouts. */
const DIAL_MS = 10;
const LIMIT_MS = 900_000;
const KEPT_OUTPUT = 4_000;

const [name = '', folder = '', python = '', modules = ''] = process.argv.slice(2);
const suite = SUITES.find((known) => known.name === name);
if (suite === undefined) throw new Error(`there is no suite ${name}`);
process.stdout.write(
  JSON.stringify(await runSuite(suite, { folder, python, modules, results: resultsFile(suite) })),
);

async function runSuite(suite: Suite, place: Place): Promise<SuiteResult> {
  const { built: served, owner } = await openAll(async (parts) => {
    const sandbox = await parts.open(
      'sandbox',
      openSandbox({
        members: MEMBERS,
        lifetimeMs: LIFETIME_MS,
        aliases: suite.ownExits,
        slow: 1,
        slowMs: DIAL_MS,
      }),
    );
    const source = (product: 'short-classic' | 'short-socks5') => {
      const { id, password, baseUrl } = sandbox.instance(product);
      return `  - { name: ${product.replace('-', '_')}, product: ${product}, baseUrl: "${baseUrl}", instance: "${id}", password: "${password}", size: ${MEMBERS}, params: { count: ${MEMBERS} } }`;
    };
    const config = parseConfig(
      [
        'sources:',
        source('short-classic'),
        source('short-socks5'),
        'pool: { allowPrivateAddresses: true }',
        'listeners:',
        ...suite.listeners(place).map((keys) => `  - { ${keys}, denyTargets: [] }`),
        'admin: { address: "127.0.0.1:0" }',
        'state: off',
        'shutdown: { drainTimeout: 0s }',
      ].join('\n'),
      'foreign.yaml',
      { env: {} },
    );
    const log = createLog({ level: 'info', format: 'json', destination: { write: () => {} } });
    const daemon = await parts.open('noria', startDaemon({ config, log }));
    await until('all members are ready', () => daemon.control.status().pool.ready >= 2 * MEMBERS);
    return () => daemon.control.members().reduce((sum, { uses }) => sum + uses, 0);
  });
  try {
    const output = await execute(suite, place);
    // Without this file the suite did not start; its output says why.
    const report = existsSync(place.results) ? readFileSync(place.results, 'utf8') : '';
    const tests = suite.report === 'junit' ? readJunit(report) : readGoEvents(report);
    return { tests, served: served(), output };
  } finally {
    await owner.close();
  }
}

/** Runs the command of the suite. Ignores its exit code, which is non-zero because of known failures. */
async function execute(suite: Suite, place: Place): Promise<string> {
  rmSync(place.results, { force: true });
  const [command, ...args] = suite.command(place);
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(command, args, {
    cwd: place.folder,
    env: { PATH, HOME, ...suite.environment?.(place) },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: LIMIT_MS,
    killSignal: 'SIGKILL',
  });
  let printed = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      printed = (printed + text).slice(-KEPT_OUTPUT);
    });
  await once(child, 'close');
  return printed;
}
