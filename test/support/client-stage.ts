/** What tests of real clients need: a whole noria with HTTP and SOCKS5 members, and targets over HTTP and TLS. */
import { createLog } from '../../src/core/log.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { openSandbox, type Sandbox } from '../../src/sandbox/sandbox.ts';
import { type ExitOrigin, openExitOrigin } from './exit-origin.ts';
import { NO_HEDGE, sourceLine, testConfig, untilReady } from './noria.ts';

export const SCHEMES = ['http', 'https'] as const;
export type Scheme = (typeof SCHEMES)[number];

export interface ClientStage {
  readonly sandbox: Sandbox;
  readonly daemon: Daemon;
  /** `127.0.0.1:PORT` of a listener without users. */
  readonly open: string;
  /** `127.0.0.1:PORT` of a listener with the user `me` and the password `x`. */
  readonly withUsers: string;
  readonly origins: Readonly<Record<Scheme, ExitOrigin>>;
  /** Returns the base address of a target. Only members resolve its name. */
  target(scheme: Scheme): string;
  /** The addresses that connected to a target and are no exit of a member. */
  strangers(): string[];
  close(): Promise<void>;
}

/** The number of members of each source. */
const MEMBERS = 8;
/** The lifetime of members in ms, which is longer than any test file runs. */
const LIFETIME_MS = 600_000;

export async function openClientStage(): Promise<ClientStage> {
  const sandbox = await openSandbox({ members: MEMBERS, lifetimeMs: LIFETIME_MS });
  const daemon = await startDaemon({
    config: testConfig({
      sources: [
        sourceLine(sandbox, 'pure', 'short-pure', `size: ${MEMBERS}, params: { count: ${MEMBERS} }`),
        sourceLine(sandbox, 'shared', 'shared', `size: ${MEMBERS}, params: { count: ${MEMBERS}, pro: 2 }`),
      ],
      listeners: `listeners: [{ address: "127.0.0.1:0" }, { address: "127.0.0.1:0", users: [{ username: me, password: x }] }]`,
      more: `dial: { ${NO_HEDGE} }`,
    }),
    log: createLog({ level: 'silent', format: 'json' }),
  });
  const origins = { http: await openExitOrigin(false), https: await openExitOrigin(true) };
  await untilReady(daemon, MEMBERS * 2);
  const [open = '', withUsers = ''] = daemon.addresses.listeners;
  return {
    sandbox,
    daemon,
    open,
    withUsers,
    origins,
    target: (scheme) => `${scheme}://target.example:${origins[scheme].port}`,
    strangers() {
      const exits = new Set(sandbox.members().map(({ exit }) => exit));
      const seen = SCHEMES.flatMap((scheme) => [...origins[scheme].seen]);
      return seen.filter((address) => !exits.has(address));
    },
    async close() {
      await daemon.close();
      await Promise.all(SCHEMES.map((scheme) => origins[scheme].close()));
      await sandbox.close();
    },
  };
}
