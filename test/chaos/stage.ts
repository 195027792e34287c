/** The stage of a run: a sandbox, a target, and one noria or a fleet. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ownership } from '../../src/core/ownership.ts';
import { seededRandom } from '../../src/core/random.ts';
import { openSandbox, type Sandbox } from '../../src/sandbox/sandbox.ts';
import { freePort } from '../support/free-port.ts';
import { TestStore } from '../support/store-server.ts';
import type { ConfigChanges, FaultStage } from './faults/fault.ts';
import { type Origin, openOrigin } from './origin.ts';
import { openServiceGate, type ServiceGate } from './service-gate.ts';
import { Subject } from './subject.ts';

/**
 * Texts that are unlikely in any output. The judge searches for each in everything that noria prints, serves and
 * stores.
 */
export const SECRETS = {
  user: 'ruby-lantern-user-7341',
  admin: 'ruby-lantern-admin-9158',
  http: 'rubyhttp4417',
  socks: 'rubysock8823',
} as const;

export const USERNAME = 'chaos';
/** The interval of both sources. */
export const INTERVAL_MS = 1_000;
/** The service's own interval is a little shorter, because timers of two processes round differently. */
const SERVICE_PACE_MS = INTERVAL_MS - 20;
const MEMBERS = 200;
/**
 * The lives of the first source's members, which are replaced all the time. Members of the second source outlive the
 * pauses that noria makes after an error.
 */
const SHORT_LIFE_MS = [15_000, 30_000] as const;
const LONG_LIFE_MS = [150_000, 200_000] as const;
/** How long tunnels outlive their member. An exchange ends within this time. */
const GRACE_MS = 60_000;
export const DEADLINE_MS = 10_000;

export interface SubjectOnStage {
  readonly subject: Subject;
  readonly port: number;
  readonly openPort: number;
  readonly folder: string;
}

export interface Stage {
  readonly sandbox: Sandbox;
  readonly origin: Origin;
  readonly gates: readonly ServiceGate[];
  /** The store of a fleet. */
  readonly store: TestStore | undefined;
  readonly on: readonly SubjectOnStage[];
  readonly faults: FaultStage;
  close(): Promise<void>;
}

export interface StageOptions {
  readonly seed: number;
  /** The number of norias: 1, or the replicas of a fleet. */
  readonly norias: number;
  readonly workers: number;
}

export async function openStage({ seed, norias, workers }: StageOptions): Promise<Stage> {
  const owner = new Ownership();
  const random = seededRandom(seed + 1);
  const sandbox = await owner.open(
    'sandbox',
    openSandbox({
      random,
      members: MEMBERS,
      graceMs: GRACE_MS,
      paceMs: SERVICE_PACE_MS,
      instances: [
        {
          product: 'short-pure',
          password: SECRETS.http,
          lifetimeMs: SHORT_LIFE_MS,
          distinctLimit: 1_000_000,
        },
        {
          product: 'shared',
          password: SECRETS.socks,
          lifetimeMs: LONG_LIFE_MS,
          auth: 'password',
          distinctLimit: 1_000_000,
        },
      ],
    }),
  );
  const origin = await owner.open('origin', openOrigin());
  const [pure, shared] = [sandbox.instance('short-pure'), sandbox.instance('shared')];
  const pureGate = await owner.open('gate', openServiceGate(pure.baseUrl));
  const sharedGate = await owner.open('gate', openServiceGate(shared.baseUrl));
  const store = norias === 1 ? undefined : await openStore(owner);
  const root = mkdtempSync(join(tmpdir(), 'noria-chaos-'));
  owner.own('folder', () => rmSync(root, { recursive: true, force: true }));
  const on: SubjectOnStage[] = [];
  const configs: ((changes: ConfigChanges) => void)[] = [];
  for (let index = 0; index < norias; index += 1) {
    const folder = join(root, `noria-${index}`);
    mkdirSync(folder);
    const [port, openPort, adminPort] = [await freePort(), await freePort(), await freePort()];
    const file = join(folder, 'noria.yaml');
    const write = (changes: ConfigChanges) =>
      writeFileSync(
        file,
        configuration({
          pure,
          shared,
          gates: [pureGate.url, sharedGate.url],
          port,
          openPort,
          adminPort,
          folder,
          workers,
          fleet: store === undefined ? '' : `fleet: { url: "${store.url}", replica: chaos-${index} }`,
          changes,
        }),
        { mode: 0o600 },
      );
    write({});
    configs.push(write);
    const name = norias === 1 ? 'noria' : `noria ${index}`;
    const subject = new Subject({ name, file, adminPort, adminToken: SECRETS.admin });
    owner.own(name, () => subject.kill());
    on.push({ subject, port, openPort, folder });
  }
  await Promise.all(on.map(({ subject }) => subject.start()));
  return {
    sandbox,
    origin,
    gates: [pureGate, sharedGate],
    store,
    on,
    faults: {
      sandbox,
      subjects: on.map(({ subject }) => subject),
      random,
      configure: async (changes) => {
        for (const write of configs) write(changes);
        await Promise.all(on.map(({ subject }) => subject.reload()));
      },
    },
    close: () => owner.close(),
  };
}

/**
 * Opens a store that writes each command to disk before it answers (`always`, not `everysec`), so that a kill loses
 * nothing that it has acknowledged.
 */
async function openStore(owner: Ownership): Promise<TestStore> {
  const args = ['--appendonly', 'yes', '--appendfsync', 'always'];
  const store = await owner.open('store', new TestStore(await freePort(), { args }));
  await store.start();
  return store;
}

interface Configuration {
  readonly pure: ReturnType<Sandbox['instance']>;
  readonly shared: ReturnType<Sandbox['instance']>;
  readonly gates: readonly [pure: string, shared: string];
  readonly port: number;
  readonly openPort: number;
  readonly adminPort: number;
  readonly folder: string;
  readonly workers: number;
  readonly fleet: string;
  readonly changes: ConfigChanges;
}

function configuration({ pure, shared, gates, changes, ...own }: Configuration): string {
  const { port, openPort, adminPort, folder, workers, fleet } = own;
  const [pureUrl, sharedUrl] = gates.map((url) => changes.serviceUrl ?? url);
  return `
service: { timeout: 2s }
sources:
  - { name: web, product: short-pure, baseUrl: "${pureUrl}", instance: "${pure.id}", password: "${SECRETS.http}", interval: ${INTERVAL_MS}ms, size: 12, params: { count: 12 } }
  - { name: socks, product: shared, baseUrl: "${sharedUrl}", instance: "${shared.id}", password: "${SECRETS.socks}", interval: ${INTERVAL_MS}ms, size: 12, params: { count: 12, pro: 2 } }
pool: { fill: size, allowPrivateAddresses: true, safetyMargin: 500ms, minRemaining: 2s }
dial: { deadline: ${DEADLINE_MS}ms, attemptTimeout: 2s, waitForMember: 8s }
health: { quarantine: 1s }
listeners:
  - { address: "127.0.0.1:${port}", denyTargets: [], users: [{ username: ${USERNAME}, password: "${SECRETS.user}" }] }
  - { address: "127.0.0.1:${openPort}", denyTargets: [] }
${changes.moreListeners ?? ''}
admin: { address: "127.0.0.1:${adminPort}", token: "${SECRETS.admin}" }
state: { dir: "${join(folder, 'state')}" }
shutdown: { drainTimeout: 1s }
log: { format: json, level: debug }
workers: ${workers}
${fleet}
${changes.appended ?? ''}
`;
}
