/** Each configuration of docs/migrating.md carries a request: its gateway, link and lists are those of the sandbox. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { exitThrough, getThrough } from '../support/exit-through.ts';
import { openTestSandbox, startDaemonWith, untilReady } from '../support/noria.ts';
import { testFolder } from './noria-process.ts';

const PAGE = readFileSync('docs/migrating.md', 'utf8');
const RECIPES = PAGE.split(/^## From /m)
  .slice(1)
  .map((section) => ({
    tool: section.split('\n', 1)[0] ?? '',
    yaml: /```yaml\n(.*?)```/s.exec(section)?.[1] ?? '',
  }));

/** The recipe with the addresses of the sandbox and ports that are free. */
async function onSandbox(yaml: string, sandbox: Sandbox) {
  const folder = testFolder();
  const { url } = sandbox.link('text');
  const text = await (await fetch(url.replace('{count}', '4'))).text();
  const [one, two, three, four] = text.split(/\s+/);
  for (const file of ['proxies.txt', 'ip.txt']) writeFileSync(join(folder, file), `${one}\n${two}\n`);
  writeFileSync(join(folder, 'more.txt'), `${three}\n${four}\n`);
  const vendor = yaml.includes('brd-customer') ? 'brightdata' : 'oxylabs';
  const keys = new URL(url).searchParams;
  const env = {
    GW_PASSWORD: sandbox.gateway.passwordOf(vendor),
    GETIP_KEY: keys.get('key') ?? '',
    NEKO_PASSWORD: 'hunter2hunter2',
  };
  const local = yaml
    .replaceAll('gw.vendor.example:8000', `127.0.0.1:${sandbox.gateway.port}`)
    .replace('https://share.example.com/get', url.split('?', 1)[0] ?? '')
    .replaceAll('http://check.example/', `${sandbox.targetUrl}/`)
    .replace(/127\.0\.0\.1:(?:8888|8089|1080)/g, '127.0.0.1:0')
    .replace(/address: 127\.0\.0\.1:24000-24009/, 'address: 127.0.0.1:0')
    .replace(/address: 127\.0\.0\.1:0/g, 'address: "127.0.0.1:0", denyTargets: []');
  const listeners = /^listeners:/m.test(local)
    ? ''
    : 'listeners: [{ address: "127.0.0.1:0", denyTargets: [] }]\n';
  const rest = 'pool: { allowPrivateAddresses: true }\nadmin: { address: "127.0.0.1:0" }\nstate: off\n';
  return parseConfig(`${local}${listeners}${rest}`, join(folder, 'noria.yaml'), { env });
}

test('migrating: every tool has a recipe', () => {
  expect(RECIPES.length).toBeGreaterThanOrEqual(7);
  for (const { tool, yaml } of RECIPES) expect(yaml, tool).toContain('sources:');
});

test.each(RECIPES)(
  'migrating: the recipe for $tool is valid as it stands, and carries requests',
  async ({ yaml }) => {
    const env = { GW_PASSWORD: 'hunter2', GETIP_KEY: 'hunter2', NEKO_PASSWORD: 'hunter2' };
    expect(parseConfig(yaml, '/etc/noria/noria.yaml', { env }).warnings).toEqual([]);
    const sandbox = await openTestSandbox({ paceMs: 0, lifetimeMs: 600_000 });
    const config = await onSandbox(yaml, sandbox);
    const noria = await startDaemonWith(config);
    await untilReady(noria, 1);
    const [user] = config.listeners[0]?.users ?? [];
    const login = user && `${user.username}:${user.password.reveal()}`;
    expect(await getThrough(noria.proxy, `${sandbox.targetUrl}/ip`, login)).toMatch(/^200 127\./);
    if (user !== undefined) return;
    for (const { name } of config.sources)
      expect(await exitThrough(noria.proxy, name, `${sandbox.targetUrl}/ip`), name).toMatch(/^200 127\./);
  },
);
