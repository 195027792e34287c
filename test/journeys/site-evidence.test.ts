/** Each row of the evidence table in docs/sites.md, over a whole noria: what bans an exit, and what only looks like it. */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { expect, test } from 'vitest';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { openSite, type SiteAnswer } from '../support/site.ts';
import { until } from '../support/until.ts';

const MEMBERS = 4;
const HOST = 'shop.localhost';
type Who = 'a' | 'b';

/** Two clients, `a` and `b`, each of which keeps its own exit of a noria with four members. */
async function openStage(rule = '') {
  const sandbox = await openTestSandbox({
    members: 20,
    lifetimeMs: 600_000,
    instances: [{ product: 'short-pure' }],
  });
  const more = `interval: 200ms, size: ${MEMBERS}, params: { count: ${MEMBERS} }`;
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'pure', 'short-pure', more)],
    more: `dial: { warm: off, hedgeAfter: off }\ntargets: [{ match: ["${HOST}"]${rule} }]`,
  });
  await untilReady(noria, MEMBERS);
  const site = await openSite();
  const [proxyHost, proxyPort] = noria.proxy.split(':');
  const bans: string[] = [];
  noria.bus.on('site.banned', ({ evidence, exit }) => bans.push(`${evidence} of ${exit}`));
  let closed = 0;
  noria.bus.on('tunnel.closed', () => {
    closed += 1;
  });

  /** A plain GET. @returns the exit that the site saw; undefined if the client got no page. */
  async function get(who: Who | undefined, path = '/', host = HOST): Promise<string | undefined> {
    const url = `http://${host}:${site.port}${path}`;
    const asked = request({
      host: proxyHost,
      port: proxyPort,
      path: url,
      agent: false,
      headers: { Host: `${host}:${site.port}`, ...(who !== undefined && authorization(who)) },
    });
    asked.end();
    const [response]: IncomingMessage[] = await once(asked, 'response');
    if (response === undefined) throw new Error('no response');
    const body = await text(response);
    return response.statusCode === 200 ? body : undefined;
  }

  async function openTunnel(who: Who, port: number): Promise<Socket> {
    const socket = connect(Number(proxyPort), proxyHost);
    const login = `Proxy-Authorization: ${authorization(who)['Proxy-Authorization']}\r\n`;
    socket.write(`CONNECT ${HOST}:${port} HTTP/1.1\r\nHost: ${HOST}\r\n${login}\r\n`);
    const [head] = await once(socket, 'data');
    expect(String(head)).toMatch(/^HTTP\/1\.1 200 /);
    return socket;
  }

  /** A GET in a tunnel, over TLS if `tls` is set. Returns when noria has ended the tunnel. */
  async function tunnel(
    who: Who,
    tls?: { readonly maxVersion?: 'TLSv1.2'; readonly checks?: true },
  ): Promise<void> {
    const before = closed;
    const socket = await openTunnel(who, tls === undefined ? site.port : site.tlsPort);
    const stream =
      tls === undefined
        ? socket
        : connectTls({
            socket,
            servername: HOST,
            rejectUnauthorized: tls.checks === true,
            ...(tls.maxVersion !== undefined && { maxVersion: tls.maxVersion }),
          });
    stream.on('error', () => {}); // ignored: the site resets the connection
    stream.write(`GET /tunnel HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
    stream.resume();
    await new Promise((resolve) => stream.once('close', resolve));
    socket.destroy();
    await until('noria has ended the tunnel', () => closed > before);
  }

  const exits = { a: (await get('a', '/warm')) ?? '', b: (await get('b', '/warm')) ?? '' };
  expect(exits.a).not.toBe(exits.b);
  return {
    ...{ noria, site, bans, exits, get, tunnel },
    /** From now on the site answers `a` like this, and all others with pages. */
    answerA: (answer: SiteAnswer | ((path: string) => SiteAnswer)) => {
      site.answer = ({ exit, path }) => {
        if (exit !== exits.a) return 200;
        return typeof answer === 'function' ? answer(path) : answer;
      };
    },
    report: async (body: object) => {
      const response = await fetch(`${noria.admin}/api/reports`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      });
      return response.status;
    },
  };
}

function authorization(who: Who) {
  return { 'Proxy-Authorization': `Basic ${btoa(`any-session-${who}:`)}` };
}

type Stage = Awaited<ReturnType<typeof openStage>>;
interface Row {
  readonly rule?: string;
  readonly act: (stage: Stage) => Promise<unknown>;
}

/** What bans the exit of `a`, by the evidence that noria names. */
const BANS: Readonly<Record<string, Row & { readonly evidence: string }>> = {
  'a report': {
    evidence: 'report',
    act: async ({ report }) =>
      expect(await report({ session: 'a', host: HOST, verdict: 'banned' })).toBe(204),
  },
  'a status of the list, also when no other exit gets pages': {
    rule: ', ban: { onStatus: [418] }',
    evidence: 'status',
    act: async ({ site, get }) => {
      site.answer = () => 418;
      await get('a');
    },
  },
  '429': {
    evidence: 'status',
    act: async ({ answerA, get }) => {
      answerA(429);
      await get('a');
    },
  },
  '403 with Retry-After': {
    evidence: 'status',
    act: async ({ answerA, get }) => {
      answerA([403, 60]);
      await get('a');
    },
  },
  '503 with Retry-After': {
    evidence: 'status',
    act: async ({ answerA, get }) => {
      answerA([503, 60]);
      await get('a');
    },
  },
  '403 on two pages': {
    evidence: 'status',
    act: async ({ answerA, get }) => {
      answerA(403);
      await get('a', '/1');
      await get('a', '/2');
    },
  },
  'two resets of plain requests': {
    evidence: 'reset',
    act: async ({ answerA, get }) => {
      answerA('reset');
      await get('a', '/1');
      await get('b');
      await get('a', '/2');
    },
  },
  'two resets of tunnels': {
    evidence: 'reset',
    act: async ({ answerA, get, tunnel }) => {
      answerA('reset');
      await tunnel('a');
      await get('b');
      await tunnel('a');
    },
  },
  'two tunnels that the site ends': {
    evidence: 'reset',
    act: async ({ answerA, get, tunnel }) => {
      answerA('end');
      await tunnel('a');
      await get('b');
      await tunnel('a');
    },
  },
  'two resets after the handshake of TLS 1.3': {
    evidence: 'reset',
    act: async ({ answerA, tunnel }) => {
      answerA('reset');
      await tunnel('a', {});
      await tunnel('b', {});
      await tunnel('a', {});
    },
  },
  'two resets after the handshake of TLS 1.2': {
    evidence: 'reset',
    act: async ({ answerA, tunnel }) => {
      answerA('reset');
      await tunnel('a', { maxVersion: 'TLSv1.2' });
      await tunnel('b', { maxVersion: 'TLSv1.2' });
      await tunnel('a', { maxVersion: 'TLSv1.2' });
    },
  },
};

test.each(Object.entries(BANS))('evidence: %s', async (_, { rule, evidence, act }) => {
  const stage = await openStage(rule);
  const { site, bans, exits, get } = stage;
  await act(stage);
  expect(bans).toEqual([`${evidence} of ${exits.a}`]);
  site.answer = () => 200;
  site.visits.length = 0;
  for (let page = 0; page < 2 * MEMBERS; page += 1) await get(undefined, `/after/${page}`);
  expect(site.visits.length).toBe(2 * MEMBERS);
  expect(site.visits.map(({ exit }) => exit)).not.toContain(exits.a);
});

/** What looks like a ban of the exit of `a`, and is none. */
const LOOK_ALIKES: Readonly<Record<string, Row>> = {
  'a report on another site': {
    act: async ({ report }) =>
      expect(await report({ session: 'a', host: 'other.localhost', verdict: 'banned' })).toBe(204),
  },
  'a status that is not in the list': {
    rule: ', ban: { onStatus: [418] }',
    act: async ({ answerA, get }) => {
      answerA([429, 60]);
      await get('a');
    },
  },
  'any status, with onStatus off': {
    rule: ', ban: { onStatus: off }',
    act: async ({ answerA, get }) => {
      for (const answer of [429, [403, 60], [503, 60]] as const) {
        answerA(answer);
        await get('a');
      }
    },
  },
  '429 without a page of the same host for another exit': {
    act: async ({ site, get }) => {
      site.answer = ({ host }) => (host === HOST ? 200 : 429);
      await get('a', '/', `api.${HOST}`);
      await get('b', '/', `api.${HOST}`);
      await get('a', '/', `api.${HOST}`);
    },
  },
  '503 without Retry-After': {
    act: async ({ answerA, get }) => {
      answerA(503);
      for (const path of ['/1', '/2', '/3']) await get('a', path);
    },
  },
  'a single 403, and the same page again': {
    act: async ({ answerA, get }) => {
      answerA(403);
      for (let time = 0; time < 3; time += 1) await get('a', '/1');
    },
  },
  '403 on two pages with another answer between': {
    act: async ({ answerA, get }) => {
      answerA((path) => (path === '/open' ? 200 : 403));
      for (const path of ['/1', '/open', '/2', '/open', '/3']) await get('a', path);
    },
  },
  'pages that are 403 for everybody': {
    act: async ({ site, get }) => {
      site.answer = ({ path }) => (path.startsWith('/secret') ? 403 : 200);
      for (const path of ['/secret/1', '/secret/2']) {
        await get('b', path);
        await get('b', '/open');
        await get('a', path);
      }
    },
  },
  'a single reset': {
    act: async ({ answerA, get, tunnel }) => {
      answerA('reset');
      await tunnel('a');
      await get('b');
      answerA(200);
      await tunnel('a');
      answerA('reset');
      await tunnel('a');
    },
  },
  'resets while no other exit is answered': {
    act: async ({ site, tunnel }) => {
      site.answer = () => 'reset';
      for (let time = 0; time < 3; time += 1) {
        await tunnel('a');
        await tunnel('b');
      }
    },
  },
  'TLS tunnels that the site ends after a short answer': {
    act: async ({ tunnel }) => {
      for (const maxVersion of ['TLSv1.2', undefined] as const) {
        for (const who of ['a', 'b', 'a', 'b', 'a'] as const)
          await tunnel(who, maxVersion === undefined ? {} : { maxVersion });
      }
    },
  },
  'clients that refuse the certificate of the site': {
    act: async ({ tunnel, get }) => {
      for (let time = 0; time < 3; time += 1) {
        await tunnel('a', { checks: true });
        await get('b');
      }
    },
  },
};

test.each(Object.entries(LOOK_ALIKES))('evidence, no ban: %s', async (_, { rule, act }) => {
  const stage = await openStage(rule);
  const { site, bans, exits, get, noria } = stage;
  await act(stage);
  expect(bans.filter((ban) => !ban.startsWith('report'))).toEqual([]);
  site.answer = () => 200;
  site.visits.length = 0;
  // The exit may be avoided for some seconds, and is not banned: a client that asks for it gets it.
  expect(await get('a')).toBe(exits.a);
  expect(noria.control.sites().find(({ name }) => name === HOST)?.bannedExits).toBe(0);
});
