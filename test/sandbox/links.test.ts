import { expect, test } from 'vitest';
import { LINK_VENDORS, type SandboxLink } from '../../src/sandbox/links.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { open } from './client.ts';

/** Calls a link as the vendor documents. */
async function call({ url, authorization, body }: SandboxLink, count = 3): Promise<string> {
  const fill = (text: string) => text.replace('{count}', String(count));
  const answer = await fetch(fill(url), {
    method: body === undefined ? 'GET' : 'POST',
    headers: authorization === undefined ? {} : { authorization },
    ...(body === undefined ? {} : { body: fill(body) }),
  });
  return answer.text();
}

/** Counts the proxies in an answer; each has its own exit. */
const proxiesIn = (answer: string) => new Set(answer.match(/127\.\d+\.\d+\.\d+/g)).size;
const NAMES = LINK_VENDORS.map(({ name }) => name);

test.each(NAMES)('links: %s answers with as many living proxies as it is asked for', async (name) => {
  const sandbox = await open();
  const link = sandbox.link(name);
  const answer = await call(link);
  const asked = link.url.includes('{count}') || link.body !== undefined ? 3 : 5;
  expect(proxiesIn(answer)).toBe(asked);
  const members = sandbox.members(`link-${name}`);
  expect(members.map(({ host }) => host).every((host) => answer.includes(host))).toBe(true);
  expect(members).toHaveLength(asked);
  expect(sandbox.link(name)).toMatchObject({ calls: 1, paceBreaks: 0 });
});

test.each(NAMES)('links: %s denies a call without the keys of the customer', async (name) => {
  const sandbox = await open({ paceMs: 0 });
  const { url, authorization: _, ...link } = sandbox.link(name);
  const denied = await call({ ...link, url: url.replace(/=[^&{]+/, '=wrong') });
  expect(proxiesIn(denied)).toBe(0);
  const wrongMethod = await fetch(url, { method: link.body === undefined ? 'POST' : 'GET' });
  expect(await wrongMethod.text()).toBe(denied);
  sandbox.setLinkCondition(name, 'denied');
  expect(await call(sandbox.link(name))).toBe(denied);
});

test.each(NAMES)(
  'links: %s refuses a call that comes too early, which does not delay the next one',
  async (name) => {
    const clock = new ManualClock();
    const sandbox = await open({ clock });
    const link = sandbox.link(name);
    expect(proxiesIn(await call(link))).toBeGreaterThan(0);
    clock.advance(link.paceMs - 1);
    expect(proxiesIn(await call(link))).toBe(0);
    clock.advance(1);
    expect(proxiesIn(await call(link))).toBeGreaterThan(0);
    expect(sandbox.link(name)).toMatchObject({ calls: 3, paceBreaks: 1 });
  },
);

test('links: an empty link has no proxies, and an unknown one is not found', async () => {
  const sandbox = await open({ paceMs: 0 });
  sandbox.setLinkCondition('qg', 'empty');
  expect(JSON.parse(await call(sandbox.link('qg')))).toMatchObject({ code: 'NO_RESOURCE_FOUND' });
  expect((await fetch(`${sandbox.url}/links/nix`)).status).toBe(404);
  expect(() => sandbox.setLinkCondition('nix', 'ok')).toThrow(/no link nix/);
});

test('links: an entry reports the life that its proxy has left', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, members: 2, lifetimeMs: 90_000, paceMs: 0 });
  await call(sandbox.link('kuaidaili'), 1);
  clock.advance(30_000);
  const { data } = JSON.parse(await call(sandbox.link('kuaidaili'), 2));
  expect(data.proxy_list.map((entry: string) => entry.split(',')[1]).toSorted()).toEqual(['60', '90']);
});

test('links: a deadline is the end of the life, in the time zone of China', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, lifetimeMs: 90_000 });
  const { data } = JSON.parse(await call(sandbox.link('qg'), 1));
  const leftMs = Date.parse(`${data[0].deadline.replace(' ', 'T')}+08:00`) - clock.now();
  expect(leftMs).toBeGreaterThan(89_000);
  expect(leftMs).toBeLessThanOrEqual(90_000);
});

test.each(NAMES.filter((name) => name !== 'text'))(
  'links: %s answers and refuses in JSON, without an unfilled template',
  async (name) => {
    const sandbox = await open({ paceMs: 0 });
    const answers = [await call(sandbox.link(name))];
    sandbox.setLinkCondition(name, 'empty');
    answers.push(await call(sandbox.link(name)));
    for (const answer of answers) {
      expect(JSON.parse(answer)).toHaveProperty('code');
      expect(answer).not.toMatch(/\{\w+\}/);
    }
  },
);
