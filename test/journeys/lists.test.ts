/** A list that somebody else keeps: its members join and leave with the list, whatever the clients want. */
import { writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect, type Server } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { getThrough } from '../support/exit-through.ts';
import { type Noria, openTestSandbox, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { testFolder } from './noria-process.ts';

async function listening(server: Server): Promise<number> {
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** A proxy that leaves through another address after each `rotate`, as a modem does. */
async function openModem(number: number) {
  const modem = { exit: `127.77.${number}.1`, rotations: 0, port: 0, rotate: () => {} };
  modem.rotate = () => {
    modem.rotations += 1;
    modem.exit = `127.77.${number}.${modem.rotations + 1}`;
  };
  const server = createServer((asked, answer) => {
    const { method, headers } = asked;
    const sent = request(asked.url ?? '', { method, headers, localAddress: modem.exit }, (got) => {
      answer.writeHead(got.statusCode ?? 500, got.headers);
      got.pipe(answer);
    });
    sent.on('error', () => answer.destroy());
    asked.pipe(sent);
  });
  server.on('connect', (asked, client, head) => {
    const [host = '', port = ''] = (asked.url ?? '').split(':');
    const target = connect({ host, port: Number(port), localAddress: modem.exit }, () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n');
      target.write(head);
      client.pipe(target).pipe(client);
    });
    target.on('close', () => client.destroy());
    for (const socket of [client, target]) socket.on('error', () => socket.destroy());
    client.on('close', () => target.destroy());
  });
  modem.port = await listening(server);
  return modem;
}

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

test('lists: rotate gives each member a new exit, one after another, and no client notices', async () => {
  const sandbox = await openTestSandbox();
  const modems = await Promise.all([openModem(1), openModem(2)]);
  const rotator = await listening(
    createServer((asked, answer) => {
      const port = Number(new URL(asked.url ?? '', 'http://localhost').searchParams.get('port'));
      const modem = modems.find((one) => one.port === port);
      modem?.rotate();
      answer.end('ok');
    }),
  );
  const file = join(testFolder(), 'modems.txt');
  writeFileSync(file, modems.map(({ port }) => `127.0.0.1:${port}\n`).join(''));
  const url = `http://127.0.0.1:${rotator}/rotate?port={port}`;
  const rotate = `rotate: { url: "${url}", every: 1s, settle: 100ms, check: "${sandbox.targetUrl}/ip" }`;
  const noria = await startNoria({
    sources: [`  - { name: modems, product: list, file: "${file}", ${rotate} }`],
  });
  await untilReady(noria, 2);
  const exits = new Set<string>();
  await until('each modem has rotated twice', async () => {
    const answer = await getThrough(noria.proxy, `${sandbox.targetUrl}/ip`);
    expect(answer).toMatch(/^200 127\.77\./);
    exits.add(answer);
    return modems.every(({ rotations }) => rotations >= 2);
  });
  expect(exits.size).toBeGreaterThan(2);
  await until('the members have the verified exits', () =>
    noria.control.members().some(({ exitIp }) => modems.some((modem) => modem.exit === exitIp)),
  );
  expect(noria.control.status().sources[0]?.reason).not.toContain('did not change');
});

test('lists: the status names a member whose exit did not change', async () => {
  const sandbox = await openTestSandbox();
  const modem = await openModem(3);
  const rotator = await listening(createServer((_, answer) => void answer.end('busy')));
  const file = join(testFolder(), 'modems.txt');
  writeFileSync(file, `127.0.0.1:${modem.port}\n`);
  const rotate = `rotate: { url: "http://127.0.0.1:${rotator}/", every: 1s, settle: 100ms, check: "${sandbox.targetUrl}/ip" }`;
  const noria = await startNoria({
    sources: [`  - { name: modems, product: list, file: "${file}", ${rotate} }`],
  });
  await untilReady(noria, 1);
  const reason = `the list has 1 member; 127.0.0.1:${modem.port}: the exit 127.77.3.1 did not change`;
  await until('the reason says so', () => noria.control.status().sources[0]?.reason === reason);
  modem.rotate();
  await until(
    'a new exit ends it',
    () => noria.control.status().sources[0]?.reason === 'the list has 1 member',
  );
});
