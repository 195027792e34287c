/** A list that somebody else keeps: its members join and leave with the list, whatever the clients want. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { getThrough } from '../support/exit-through.ts';
import { type Noria, openTestSandbox, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { testFolder } from './noria-process.ts';

/** The addresses of living proxies, which the sandbox gives for an extraction link. */
async function proxies(sandbox: Sandbox, count: number): Promise<string[]> {
  const url = sandbox
    .link('text')
    .url.replace(/\{count\}|num=\d+/, (part) => (part.startsWith('num') ? `num=${count}` : String(count)));
  const text = await (await fetch(url)).text();
  return text
    .trim()
    .split(/\s+/)
    .map((line) => line.split(',')[0] ?? '');
}

const addresses = (noria: Noria) =>
  noria.control
    .members()
    .filter(({ state }) => state === 'ready')
    .map(({ host, port }) => `${host}:${port}`)
    .sort();

test('lists: editing the file moves members within three seconds, also without a client', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0, lifetimeMs: 600_000 });
  const [one = '', two = '', three = ''] = await proxies(sandbox, 3);
  const file = join(testFolder(), 'proxies.txt');
  writeFileSync(file, `# ours\n${one}\n${two}\n`);
  const noria = await startNoria({ sources: [`  - { name: ours, product: list, file: "${file}" }`] });
  await untilReady(noria, 2);
  expect(addresses(noria)).toEqual([one, two].sort());
  expect(await getThrough(noria.proxy, `${sandbox.targetUrl}/ip`)).toMatch(/^200 127\./);
  const editedAt = performance.now();
  writeFileSync(file, `${two}\n${three}\n${three}\nnonsense\n`);
  await until(
    'the members are those of the new list',
    () => addresses(noria).join() === [two, three].sort().join(),
  );
  expect(performance.now() - editedAt).toBeLessThan(3_000);
  await until('the status names what cannot be used', () =>
    /line 4 cannot be used; duplicates: 1/.test(noria.control.status().sources[0]?.reason ?? ''),
  );
});

test('lists: a URL is read again at each refresh, and sends an unchanged list only once', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0, lifetimeMs: 600_000 });
  const [one = '', two = ''] = await proxies(sandbox, 2);
  let list = one;
  let status = 200;
  const answers: number[] = [];
  const server = createServer((request, response) => {
    const etag = `"${list}"`;
    const code = status === 200 && request.headers['if-none-match'] === etag ? 304 : status;
    answers.push(code);
    response.writeHead(code, { etag }).end(code === 200 ? `${list}\n` : '');
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/proxies.txt`;
  const noria = await startNoria({
    sources: [`  - { name: ours, product: list, url: "${url}", refresh: 1s }`],
  });
  await untilReady(noria, 1);
  await until('the list was asked for again', () => answers.includes(304));
  expect(addresses(noria)).toEqual([one]);
  status = 500;
  await until('the URL failed', () => answers.includes(500));
  expect(addresses(noria)).toEqual([one]);
  status = 200;
  list = two;
  noria.control.refillSource('ours');
  await until('the members are those of the new list', () => addresses(noria).join() === two);
  list = '';
  noria.control.refillSource('ours');
  await until('the list is empty', () => addresses(noria).length === 0);
  expect(noria.control.status().sources[0]).toMatchObject({ state: 'ready' });
});
