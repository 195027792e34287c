/**
 * Two hosts with two workers each, in processes of their own, behave as one noria to their clients and to the service: also while
 * a worker, a host or the store is killed. The sandbox records the calls, and the test checks the pace in this record.
 */
import { expect, test } from 'vitest';
import { z } from 'zod';
import { memberSchema, sessionSchema, statusSchema } from '../../src/admin/schemas.ts';
import { whileAlone, workersOf } from '../plane/workers/worker-pair.ts';
import { getThrough } from '../support/exit-through.ts';
import { expectPace, type FleetStage, openFleetStage } from '../support/fleet-stage.ts';
import { sourceLine } from '../support/noria.ts';
import { NO_STORE } from '../support/store-server.ts';
import { until } from '../support/until.ts';
import { type NoriaProcess, runNoria, testFolder, writeIn } from './noria-process.ts';

const MEMBERS = 4;
const addresses = z.object({ listeners: z.array(z.string()), admin: z.string() });

class Host {
  readonly noria: NoriaProcess;
  readonly #proxy: string;
  readonly #admin: string;
  readonly #targetUrl: string;

  constructor(noria: NoriaProcess, { listeners, admin }: z.infer<typeof addresses>, targetUrl: string) {
    this.noria = noria;
    this.#proxy = listeners[0] ?? '';
    this.#admin = `http://${admin}`;
    this.#targetUrl = targetUrl;
  }

  /** The pids of its workers. */
  workers(): number[] {
    return workersOf(this.noria.child.pid);
  }

  /** The exit that the target sees. @param session - of the client; absent: none. */
  async exit(session?: string): Promise<string> {
    const credentials = session === undefined ? undefined : `me-session-${session}:x`;
    return (await getThrough(this.#proxy, `${this.#targetUrl}/ip`, credentials)).replace(/^200 /, '');
  }

  /** The exit that the target sees if this worker serves the client. */
  exitThrough(worker: number, session: string): Promise<string> {
    return whileAlone(worker, this.workers(), () => this.exit(session));
  }

  /** The exits of the session through each worker. */
  async exits(session: string): Promise<string[]> {
    const found: string[] = [];
    for (const worker of this.workers()) found.push(await this.exitThrough(worker, session));
    return found;
  }

  async status() {
    return statusSchema.parse(await this.#get('status'));
  }

  async memberIds(): Promise<string[]> {
    const members = memberSchema.array().parse(await this.#get('members'));
    return members
      .filter(({ state }) => state === 'ready')
      .map(({ id }) => id)
      .sort();
  }

  async memberOf(session: string): Promise<string | undefined> {
    const sessions = sessionSchema.array().parse(await this.#get('sessions'));
    return sessions.find(({ id }) => id === session)?.member ?? undefined;
  }

  async evict(member: string): Promise<void> {
    const headers = { 'Content-Type': 'application/json' };
    const answer = await fetch(`${this.#admin}/api/members/${member}/evict`, { method: 'POST', headers });
    expect(answer.status).toBe(204);
  }

  async #get(path: string): Promise<unknown> {
    return (await fetch(`${this.#admin}/api/${path}`)).json();
  }
}

const openStage = () => openFleetStage(MEMBERS, []);

async function startHost({ sandbox, store }: FleetStage, name: string): Promise<Host> {
  const keys = `interval: 1s, size: ${MEMBERS}, params: { count: 2, pro: 1 }`;
  const file = writeIn(
    testFolder(),
    'noria.yaml',
    `
sources:
${sourceLine(sandbox, 'city', 'shared', keys)}
pool: { fill: size, allowPrivateAddresses: true }
dial: { waitForMember: 60s, deadline: 60s, attemptTimeout: 60s, hedgeAfter: off } # a busy machine must not change an exit
listeners: [{ address: "127.0.0.1:0", denyTargets: [] }]
admin: { address: "127.0.0.1:0" }
state: off
workers: 2
fleet: { url: "${store.url}", replica: ${name} }
`,
  );
  const noria = runNoria(['run', '-c', file]);
  return new Host(noria, addresses.parse(await noria.line('noria is running')), sandbox.targetUrl);
}

/** Waits until all hosts have the same members, and as many as they should. */
async function untilSame(...hosts: readonly Host[]): Promise<readonly string[]> {
  let ids: readonly string[] = [];
  await until('all hosts have the same members', async () => {
    const lists = await Promise.all(hosts.map((host) => host.memberIds()));
    ids = lists[0] ?? [];
    return ids.length === MEMBERS && lists.every((list) => list.join() === ids.join());
  });
  return ids;
}

/** Waits until the session has the same exit through every worker of all hosts, other than `before`. */
async function untilAgreed(hosts: readonly Host[], session: string, before = ''): Promise<string> {
  let exit = '';
  await until(`all workers have the same exit for ${session}`, async () => {
    const exits: string[] = [];
    for (const host of hosts) exits.push(...(await host.exits(session)));
    exit = exits[0] ?? '';
    return exits.length === 2 * hosts.length && exits.every((each) => each === exit) && exit !== before;
  });
  return exit;
}

/** Evicts a member at the first host. Waits until the member has left at all hosts and a draw has replaced it. */
async function replaceMember(...hosts: readonly [Host, ...Host[]]): Promise<void> {
  const [id = ''] = await hosts[0].memberIds();
  await hosts[0].evict(id);
  await until('it has left everywhere', async () => {
    const lists = await Promise.all(hosts.map((host) => host.memberIds()));
    return lists.every((list) => !list.includes(id));
  });
  await untilSame(...hosts);
}

const untilStore = (hosts: readonly Host[], state: 'connected' | 'lost') =>
  until(`the store is ${state}`, async () => {
    const all = await Promise.all(hosts.map((host) => host.status()));
    return all.every(({ fleet }) => fleet?.store === state);
  });

test.skipIf(NO_STORE)(
  'fleet of workers: two hosts draw as one, and their four workers share members and sessions',
  async () => {
    const stage = await openStage();
    const [one, two] = [await startHost(stage, 'one'), await startHost(stage, 'two')];
    const hosts = [one, two];
    expect(await two.exit()).toMatch(/^127\./); // a client is demand for all
    await untilSame(one, two);

    const [first = 0, second = 0] = one.workers();
    const exit = await one.exitThrough(first, 'a');
    expect(await one.exitThrough(second, 'a')).toBe(exit);
    // A busy machine may take longer than a new session waits for the store; then both agree soon.
    await until('the other host uses the same exit', async () =>
      (await two.exits('a')).every((each) => each === exit),
    );

    await one.evict((await one.memberOf('a')) ?? '');
    const next = await untilAgreed(hosts, 'a', exit);
    await untilSame(one, two);
    await until('each host is one replica', async () => {
      const { fleet } = await one.status();
      return fleet?.replicas.map(({ name }) => name).join() === 'one,two';
    });

    process.kill(second, 'SIGKILL');
    await until('another worker runs', async () => {
      const pids = one.workers();
      return pids.length === 2 && !pids.includes(second) && (await one.status()).workers.running === 2;
    });
    expect(await one.exits('a')).toEqual([next, next]);
    expectPace(stage.sandbox);
  },
);

test.skipIf(NO_STORE)(
  'fleet of workers: a killed host and a lost store fail no client, and break no pace',
  async () => {
    const stage = await openStage();
    const { store } = stage;
    const [one, two] = [await startHost(stage, 'one'), await startHost(stage, 'two')];
    const exit = await one.exit('a');
    expect(exit).toMatch(/^127\./);
    await untilSame(one, two);

    two.noria.child.kill('SIGKILL');
    await two.noria.ended;
    await until('the other host notices', async () => (await one.status()).fleet?.replicas.length === 1);
    await replaceMember(one);
    const again = await startHost(stage, 'two');
    await untilSame(one, again);
    const agreed = await untilAgreed([one, again], 'a');

    await store.kill();
    await untilStore([one, again], 'lost');
    expect([...(await one.exits('a')), ...(await again.exits('a'))]).toEqual(Array(4).fill(agreed));
    const alone = await untilAgreed([one], 'b');
    expect(alone).toMatch(/^127\./);
    await store.start();
    await untilStore([one, again], 'connected');
    expect(await untilAgreed([one, again], 'b')).toBe(alone);
    await replaceMember(again, one);
    expectPace(stage.sandbox);
  },
);
