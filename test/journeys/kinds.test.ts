/**
 * The same journeys through members of every kind: drawn from the service, drawn from a vendor's link, made for a
 * gateway, and read from a list.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Sandbox, SandboxOptions } from '../../src/sandbox/sandbox.ts';
import { getThrough } from '../support/exit-through.ts';
import {
  NO_HEDGE,
  type Noria,
  openTestSandbox,
  sourceLine,
  startNoria,
  untilReady,
} from '../support/noria.ts';
import { NO_STORE, openStore } from '../support/store-server.ts';
import { until } from '../support/until.ts';
import { testFolder } from './noria-process.ts';

interface Source {
  readonly yaml: string;
  /** Ends the machine behind an exit, so that nothing reaches a target through it. */
  die(exit: string): Promise<void>;
  /** Lets the life of an exit's member end in the way of its kind. */
  leave?(exit: string): void;
}

interface Kind {
  readonly kind: string;
  /** @param auth - the credentials for the members; absent: those that they take. */
  readonly open: (
    sandbox: Sandbox,
    options: { readonly size: number; readonly lifetime?: string; readonly auth?: string },
  ) => Promise<Source>;
}

/** Ends the machine of a member with an address of its own. */
const endMachine = (sandbox: Sandbox) => async (exit: string) => {
  const member = sandbox.members().find((known) => known.exit === exit);
  await sandbox.kill(member?.id ?? '');
};

async function addressesOf(sandbox: Sandbox, link: string, count: number): Promise<string[]> {
  const answer = await fetch(sandbox.link(link).url.replace('{count}', String(count)));
  return (
    (await answer.text())
      .match(/127\.\d+\.\d+\.\d+(?::|","port":)\d+/g)
      ?.map((text) => text.replace('","port":', ':')) ?? []
  );
}

const KINDS: readonly Kind[] = [
  {
    kind: 'service',
    open: async (sandbox, { size, auth }) => {
      const upstream = auth === undefined ? '' : `, upstream: { auth: ${auth} }`;
      const keys = `interval: 100ms, size: ${size}, params: { count: ${size} }${upstream}`;
      return { yaml: sourceLine(sandbox, 'one', 'short-pure', keys), die: endMachine(sandbox) };
    },
  },
  {
    kind: 'link',
    open: async (sandbox, { size, auth = 'none', lifetime = '5m' }) => {
      const url = sandbox.link('text').url;
      const keys = `interval: 100ms, size: ${size}, lifetime: ${lifetime}, upstream: { protocol: http, auth: ${auth} }`;
      const link = auth === 'none' ? url : sandbox.link('pinzan').url;
      return { yaml: `  - { name: one, product: link, url: "${link}", ${keys} }`, die: endMachine(sandbox) };
    },
  },
  {
    kind: 'gateway',
    open: async ({ gateway }, { size, lifetime = '10m', auth }) => {
      const own = `{ username: "customer-me-sessid-{session}", password: "${gateway.passwordOf('oxylabs')}" }`;
      if (auth !== undefined) gateway.refusesAll = true;
      const keys = `size: ${size}, lifetime: ${lifetime}, upstream: { protocol: http, auth: ${own} }`;
      return {
        yaml: `  - { name: one, product: gateway, address: "127.0.0.1:${gateway.port}", ${keys} }`,
        die: async (exit) => gateway.endExit(exit),
      };
    },
  },
  {
    kind: 'list',
    open: async (sandbox, { auth = 'none' }) => {
      const file = join(testFolder(), 'proxies.txt');
      const addresses = await addressesOf(sandbox, auth === 'none' ? 'text' : 'pinzan', 3);
      writeFileSync(file, addresses.join('\n'));
      return {
        yaml: `  - { name: one, product: list, file: "${file}", upstream: { protocol: http, auth: ${auth} } }`,
        die: endMachine(sandbox),
        leave(exit) {
          const member = sandbox.members().find((known) => known.exit === exit);
          const gone = `${member?.host}:${member?.port}`;
          const lines = readFileSync(file, 'utf8').split('\n');
          writeFileSync(file, lines.filter((line) => line !== gone).join('\n'));
        },
      };
    },
  },
];

/** Holds `size` members from the start. */
const FULL = 'safetyMargin: 200ms, minRemaining: 0s, idleAfter: 0s, fill: size';

interface Stage {
  readonly noria: Noria;
  readonly sandbox: Sandbox;
  readonly source: Source;
  /** What the target answers to a client of this session: its exit. @param name - another name of the target. */
  readonly ask: (session?: string, name?: string) => Promise<string>;
}

async function openStage(
  { open }: Kind,
  options: Parameters<Kind['open']>[1],
  sandboxOptions: SandboxOptions = {},
): Promise<Stage> {
  const sandbox = await openTestSandbox({ paceMs: 0, lifetimeMs: 600_000, members: 40, ...sandboxOptions });
  const source = await open(sandbox, options);
  const noria = await startNoria({ sources: [source.yaml], pool: FULL, more: `dial: { ${NO_HEDGE} }` });
  const ask = (session?: string, name?: string) => {
    const { hostname, port } = new URL(sandbox.targetUrl);
    return getThrough(
      noria.proxy,
      `http://${name ?? hostname}:${port}/ip`,
      session && `me-session-${session}:x`,
    );
  };
  return { noria, sandbox, source, ask };
}

const ipOf = (answer: string) => {
  expect(answer).toMatch(/^200 127\.\d+\.\d+\.\d+$/);
  return answer.slice(4);
};

test.each(KINDS)('kinds, $kind: a dead member fails no client, and is blamed', async (kind) => {
  const { noria, source, ask } = await openStage(kind, { size: 3 });
  await untilReady(noria, 3);
  const dead = ipOf(await ask('a'));
  const [member] = noria.control.sessions();
  const deadId = member?.member ?? '';
  await source.die(dead);
  await until('the member is blamed', async () => {
    // A gateway itself answers for a dead exit, so noria blames the member only if several hosts fail through it.
    for (const name of ['one.example', 'two.example'])
      for (const session of ['a', undefined]) expect(ipOf(await ask(session, name))).not.toBe(dead);
    const found = noria.control.members().find(({ id }) => id === deadId);
    return found === undefined || found.state === 'quarantined' || found.faults > 0;
  });
});

test.each(KINDS)('kinds, $kind: an exit that a site bans is replaced within one request', async (kind) => {
  // a list has no other members than its own, so it begins with three
  const { noria, sandbox, ask } = await openStage(kind, { size: 1 });
  await untilReady(noria, 1);
  const banned = ipOf(await ask('a'));
  const { hostname } = new URL(sandbox.targetUrl);
  const report = `http://noria.invalid/banned?host=${hostname}&for=30m`;
  expect(await getThrough(noria.proxy, report, 'me-session-a:x')).toMatch(/^204/);
  const next = ipOf(await ask('a'));
  expect(next).not.toBe(banned);
  expect(ipOf(await ask('a'))).toBe(next);
});

test.each(KINDS)('kinds, $kind: sessions keep their exits until they are rotated', async (kind) => {
  const { noria, ask } = await openStage(kind, { size: 3 });
  await untilReady(noria, 3);
  const first = { a: ipOf(await ask('a')), b: ipOf(await ask('b')) };
  expect(first.a).not.toBe(first.b);
  for (let round = 0; round < 4; round += 1)
    expect({ a: ipOf(await ask('a')), b: ipOf(await ask('b')) }).toEqual(first);
  const id = noria.control.sessions().find(({ id }) => id.endsWith('a'))?.id ?? '';
  noria.control.rotateSession(id, false);
  expect(ipOf(await ask('a'))).not.toBe(first.a);
  expect(ipOf(await ask('b'))).toBe(first.b);
});

test.each(KINDS)('kinds, $kind: a member whose life ends is left before a client notices', async (kind) => {
  const { noria, source, ask } = await openStage(
    kind,
    { size: 3, lifetime: '2s' },
    kind.kind === 'list' ? {} : { lifetimeMs: 2_000 },
  );
  await untilReady(noria, 3);
  const first = ipOf(await ask('a'));
  const ids = new Set(noria.control.members().map(({ id }) => id));
  source.leave?.(first);
  await until('the session has another exit', async () => ipOf(await ask('a')) !== first);
  const held = noria.control.members().filter(({ state }) => state === 'ready');
  expect(
    held.every(({ id }) => ids.has(id)),
    'a list has its other members, other kinds get new ones',
  ).toBe(kind.kind === 'list');
});

test.each(KINDS)(
  'kinds, $kind: refused credentials are the fault of the source, which says so',
  async (kind) => {
    const wrong = '{ username: wrong, password: hunter2hunter2 }';
    const { noria, ask } = await openStage(kind, { size: 3, auth: wrong }, { auth: 'password' });
    await until('the source is stopped', async () => {
      expect(await ask()).toMatch(/^50[23] /);
      const [status] = noria.control.status().sources;
      return status?.blocked === true;
    });
    const [status] = noria.control.status().sources;
    expect(status?.state).toMatch(/^(paused|halted)$/);
    expect(status?.reason).toContain('refused the credentials');
    expect(status?.advice).toContain('upstream.auth');
    for (const line of noria.lines) expect(line).not.toContain('hunter2hunter2');
  },
);

/** Starts two norias of one fleet, each with this source. */
async function openPair(yaml: string): Promise<readonly [Noria, Noria]> {
  const store = await openStore({ args: ['--appendonly', 'yes'] });
  const start = (replica: string) =>
    startNoria({
      sources: [yaml],
      pool: FULL,
      more: `fleet: { url: "redis://127.0.0.1:${store.port}", replica: ${replica} }\ndial: { ${NO_HEDGE} }`,
    });
  return [await start('one'), await start('two')];
}

/** A list at a URL with a key: norias share its members, because nobody without the key can forge them. */
async function listAtUrl(sandbox: Sandbox): Promise<string> {
  const text = (await addressesOf(sandbox, 'text', 3)).join('\n');
  const server = createServer((_, response) => void response.end(text));
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return `  - { name: one, product: list, url: "http://127.0.0.1:${port}/p.txt?key=abcdef123456", upstream: { protocol: http, auth: none } }`;
}

const SHARED = KINDS.filter(({ kind }) => kind !== 'gateway');

test.skipIf(NO_STORE).each(SHARED)(
  'kinds, $kind: two norias of a fleet share members and sessions',
  async (kind) => {
    const sandbox = await openTestSandbox({ paceMs: 0, lifetimeMs: 600_000, members: 40 });
    const { yaml } = await kind.open(sandbox, { size: 3 });
    const [one, two] = await openPair(kind.kind === 'list' ? await listAtUrl(sandbox) : yaml);
    const ids = ({ control }: Noria) =>
      control
        .members()
        .map(({ id }) => id)
        .sort();
    await untilReady(one, 3);
    await until('both have the same members', () => ids(one).join() === ids(two).join());
    const ask = (noria: Noria) => getThrough(noria.proxy, `${sandbox.targetUrl}/ip`, 'me-session-a:x');
    const exit = ipOf(await ask(one));
    await until('the session has the same exit at both', async () => ipOf(await ask(two)) === exit);
    const id = one.control.sessions()[0]?.member ?? '';
    one.control.evictMember(id);
    await until('it has left both', () => !ids(two).includes(id));
    const next = ipOf(await ask(two));
    expect(next).not.toBe(exit);
    await until('the other follows', async () => ipOf(await ask(one)) === next);
  },
);

test.skipIf(NO_STORE)('kinds, gateway: each noria of a fleet makes its own names', async () => {
  const sandbox = await openTestSandbox();
  const kind = KINDS.find((each) => each.kind === 'gateway');
  const source = await kind?.open(sandbox, { size: 3 });
  const pair = await openPair(source?.yaml ?? '');
  for (const noria of pair) {
    await untilReady(noria, 3);
    const ask = () => getThrough(noria.proxy, `${sandbox.targetUrl}/ip`, 'me-session-a:x');
    const exit = ipOf(await ask());
    expect(ipOf(await ask())).toBe(exit);
  }
  expect(sandbox.gateway.sessions.size, 'names that carried a request').toBe(2);
});
