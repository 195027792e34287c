/** A site that resets connections, over a whole noria: how many exits a request may cost, and what noria learns from it. */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { type Noria, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { openSite } from '../support/site.ts';

const MEMBERS = 6;

async function openStage() {
  const sandbox = await openTestSandbox({
    members: MEMBERS,
    lifetimeMs: 600_000,
    instances: [{ product: 'short-pure' }],
  });
  const more = `interval: 200ms, size: ${MEMBERS}, params: { count: ${MEMBERS} }`;
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'pure', 'short-pure', more)],
    more: 'dial: { warm: off, hedgeAfter: off }',
  });
  await untilReady(noria, MEMBERS);
  const site = await openSite();
  const url = `http://shop.localhost:${site.port}`;
  return { sandbox, noria, site, url, get: (path: string) => get(noria, url + path) };
}

async function get({ proxy }: Noria, url: string) {
  const [host, port] = proxy.split(':');
  const asked = request({ host, port, path: url, headers: { Host: new URL(url).host } });
  asked.end();
  const [response]: IncomingMessage[] = await once(asked, 'response');
  if (response === undefined) throw new Error('no response');
  const body = await text(response);
  return { status: response.statusCode, headers: response.headers, body };
}

test('resets: a GET visits two exits that worked before, names their members, and later ones leave them alone', async () => {
  const { noria, site, get } = await openStage();
  const answered = new Map<string, string>();
  for (let page = 0; page < MEMBERS; page += 1) {
    const { body, headers } = await get(`/${page}`);
    answered.set(String(headers['x-noria-member']), body);
  }
  expect(answered.size, 'each exit worked').toBe(MEMBERS);

  site.visits.length = 0;
  site.answer = () => 'reset';
  const failed = await get('/reset');
  expect(failed.status).toBe(502);
  const resetExits = site.visits.map(({ exit }) => exit);
  expect(new Set(resetExits).size, `visits of ${resetExits}`).toBe(2);
  expect(resetExits.length).toBe(2);
  const tried = String(failed.headers['x-noria-tried']).split(', ');
  expect(tried.map((member) => answered.get(member))).toEqual(resetExits);

  // Round robin would come back to the two exits within these requests.
  site.visits.length = 0;
  site.answer = ({ exit }) => (resetExits.includes(exit) ? 'reset' : 200);
  for (let page = 0; page < 2 * MEMBERS; page += 1) expect((await get(`/again/${page}`)).status).toBe(200);
  expect(site.visits.filter(({ exit }) => resetExits.includes(exit))).toEqual([]);
  expect(noria.control.sites()[0]).toMatchObject({ bans: 0 });
});

test('resets: a host that never answered may be tried through three exits', async () => {
  const { site, get } = await openStage();
  site.answer = () => 'reset';
  const { status, headers } = await get('/');
  expect(status).toBe(502);
  expect(new Set(String(headers['x-noria-tried']).split(', ')).size).toBe(3);
  expect(new Set(site.visits.map(({ exit }) => exit)).size).toBe(3);
});

test('resets: a CONNECT that fails through every member names them', async () => {
  const { sandbox, noria, site } = await openStage();
  for (const { id } of sandbox.members()) await sandbox.setBehaviour(id, { how: 'status', status: 500 });
  const known = noria.control.members().map(({ id }) => id);
  const [host, port] = noria.proxy.split(':');
  const socket = connect(Number(port), host);
  socket.write(`CONNECT shop.localhost:${site.port} HTTP/1.1\r\nHost: shop.localhost\r\n\r\n`);
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 502 /);
  const tried = (/^X-Noria-Tried: (.*)\r$/m.exec(answer)?.[1] ?? '').split(', ');
  expect(answer).toContain(`X-Noria-Attempts: ${tried.length}\r\n`);
  expect(new Set(tried).size).toBe(tried.length);
  for (const member of tried) expect(known).toContain(member);
});
