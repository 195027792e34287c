/** `noria link` against a real server: what it prints, what it masks, and when it calls. */
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { parse } from 'yaml';
import { runProgram } from '../../src/commands/program.ts';
import { parseConfig } from '../../src/config/load.ts';
import { testFolder } from '../journeys/noria-process.ts';
import { openTestSandbox, sourceLine } from '../support/noria.ts';
import { fakeTerminal } from './fake-terminal.ts';

const KEY = 'abcdef123456';

beforeEach(() => {
  vi.stubEnv('TMPDIR', testFolder()); // the folder in which the command keeps its pace
  return () => vi.unstubAllEnvs();
});

interface Vendor {
  readonly url: string;
  /** The query and the time of each call. */
  readonly calls: { readonly query: string; readonly at: number }[];
}

async function openVendor(body: string, status = 200): Promise<Vendor> {
  const calls: Vendor['calls'] = [];
  const server = createServer((request, response) => {
    calls.push({ query: request.url ?? '', at: performance.now() });
    response.writeHead(status).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/get`, calls };
}

async function link(url: string, ...flags: string[]) {
  const terminal = fakeTerminal({ input: `${url}\n` });
  const exitCode = await runProgram(['link', ...flags, ...(flags.includes('-') ? [] : [url])], terminal);
  return { exitCode, out: terminal.printed(), err: terminal.errors() };
}

const ANSWER = JSON.stringify({
  code: 0,
  data: {
    list: [
      { ip: '192.0.2.1', port: '8000', expired_seconds: 95, city: '苏州', real_ip: '198.51.100.7' },
      { ip: '192.0.2.2', port: '8000', expired_seconds: 60 },
      { ip: '192.0.2.3', port: '8000', expired_seconds: 60 },
      { ip: '192.0.2.4', port: '8000', expired_seconds: 60 },
      { ip: 'x' },
    ],
  },
});

test('link command: prints what it recognised, three entries and the source to paste', async () => {
  const { url, calls } = await openVendor(ANSWER);
  const { exitCode, out, err } = await link(`${url}?key=${KEY}&num=5&type=json`);
  expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
  expect(calls.map(({ query }) => query)).toEqual([`/get?key=${KEY}&num=5&type=json`]);
  expect(out).not.toContain(KEY);
  const [table = '', entries = ''] = out.split('\n\n');
  expect(table.split('\n').slice(1)).toEqual([
    'format    json',
    'list      data.list',
    'address   {ip}:{port}',
    'expiry    expired_seconds: the remaining lifetime in seconds',
    'exit IP   real_ip',
    'location  city',
    'success   code is 0',
    'entries   4, 1 dropped: no usable address',
  ]);
  expect(entries.split('\n')).toEqual([
    'ADDRESS         PROTOCOL  LIFE  EXIT IP       LOCATION',
    '192.0.2.1:8000  http      95s   198.51.100.7  苏州',
    '192.0.2.2:8000  http      1m',
    '192.0.2.3:8000  http      1m',
  ]);
  const yaml = out.slice(out.indexOf('sources:'));
  const [source] = parseConfig(yaml, 'noria.yaml', { env: { LINK_KEY: KEY } }).sources;
  expect(source).toMatchObject({
    product: 'link',
    count: 5,
    answer: { list: 'data.list', exitIp: 'real_ip' },
  });
  expect(source?.product === 'link' && source.url.reveal()).toBe(`${url}?key=${KEY}&num={count}&type=json`);
  expect(out).toContain("#   export LINK_KEY='…'  # the value of key");
});

test('link command: --json prints the same facts; a password is in neither', async () => {
  const { url, calls } = await openVendor('bob:s3cret@192.0.2.1:80\nbob:s3cret@192.0.2.2:80\n');
  const { out } = await link(`${url}?num={count}`, '--json', '-n', '7');
  const facts: unknown = JSON.parse(out);
  expect(facts).toMatchObject({
    recognised: { format: 'text', address: '{username}:{password}@{ip}:{port}' },
    count: 2,
    entries: [{ address: '192.0.2.1:80', life: 'not in the answer', credentials: true }, {}],
    variables: {},
  });
  expect(calls.map(({ query }) => query)).toEqual(['/get?num=7']);
  const { source } = facts as { source: string };
  expect(parse(source).sources[0]).toMatchObject({ lifetime: '60s', upstream: { auth: 'entry' } });
  expect(out).not.toContain('s3cret');
});

test('link command: reads the link from standard input', async () => {
  const { url, calls } = await openVendor('192.0.2.1:80');
  expect((await link(`${url}?key=${KEY}`, '-')).exitCode).toBe(0);
  expect(calls).toHaveLength(1);
});

test('link command: never calls a link twice within a second', async () => {
  const { url, calls } = await openVendor('192.0.2.1:80');
  const both = await Promise.all([link(`${url}?key=${KEY}`), link(`${url}?key=${KEY}`)]);
  expect(both.map(({ exitCode }) => exitCode)).toEqual([0, 0]);
  expect(both.map(({ err }) => err).join('')).toContain('the pace does not allow the call earlier');
  const [first = { at: 0 }, second = { at: 0 }] = calls;
  expect(second.at - first.at).toBeGreaterThan(1_000);
});

test.each<[name: string, body: string, status: number, exitCode: number, message: RegExp]>([
  [
    'an error of the vendor',
    `{"code":113,"msg":"no","key":"${KEY}"}`,
    200,
    1,
    /"code":113.*"key":"\[secret\]"/,
  ],
  ['a web page', '<html>', 200, 1, /sent a web page/],
  ['a wrong path', 'no', 404, 1, /status 404/],
])('link command: %s is an error', async (_name, body, status, exitCode, message) => {
  const { url } = await openVendor(body, status);
  const { err, ...rest } = await link(`${url}?key=${KEY}`);
  expect(rest).toEqual({ exitCode, out: '' });
  expect(err).toMatch(message);
  expect(err).not.toContain(KEY);
});

test.each([
  [`127.0.0.1:1/get?key=${KEY}`, 2],
  [`http://bob:${KEY}@127.0.0.1:1/get`, 2],
  [`http://127.0.0.1:1/get?key=${KEY}`, 3],
])('link command: %s ends with exit code %i', async (url, exitCode) => {
  const { err, ...rest } = await link(url);
  expect(rest).toEqual({ exitCode, out: '' });
  expect(err).not.toContain(KEY);
});

test('simulate: members of a link live as long as the source says', async () => {
  const dir = testFolder();
  const file = join(dir, 'noria.yaml');
  const write = (lifetime: string) =>
    writeFileSync(
      file,
      `sources: [{ name: a, product: link, url: "https://share.example.com/get?key=${KEY}&n={count}", interval: 5s${lifetime} }]\npool: { fill: size }`,
    );
  const drawn = async () => {
    const terminal = fakeTerminal();
    expect(
      await runProgram(['simulate', '-c', file, '--json', '--hours', '8-9', '--requests', '1'], terminal),
    ).toBe(0);
    const report: unknown = JSON.parse(terminal.printed());
    expect(report).toMatchObject({ clients: { noMember: 0 } });
    return (report as { drawn: number }).drawn;
  };
  write(', lifetime: 1m');
  const short = await drawn();
  write(', lifetime: 10m');
  expect(short / (await drawn())).toBeGreaterThan(5);
});

test('link command: warns that a sign may cover the count', async () => {
  const { url } = await openVendor('192.0.2.1:80');
  const { out } = await link(`${url}?num=5&sign=${KEY}`);
  expect(out).toContain(
    'num={count}&sign=${LINK_SIGN} # if the parameter sign is a signature that also covers the count, write 5 instead of {count}: the signature is invalid for any other count',
  );
});

test('extract: draws from a link with a header, and prints the entries in the usual fields', async () => {
  const dir = testFolder();
  const file = join(dir, 'noria.yaml');
  const { url, calls } = await openVendor(ANSWER);
  const source = `name: a, product: link, url: "${url}?key=${KEY}&num={count}", interval: 1s, headers: { X-Key: ${KEY} }`;
  writeFileSync(file, `sources: [{ ${source} }]\nstate: { dir: "${dir}/state" }\n`, { mode: 0o600 });
  const terminal = fakeTerminal();
  expect(await runProgram(['extract', 'a', '-c', file, '--json', '-n', '2'], terminal)).toBe(0);
  expect(calls.map(({ query }) => query)).toEqual([`/get?key=${KEY}&num=2`]);
  expect(JSON.parse(terminal.printed())[0]).toEqual({
    ip: '192.0.2.1',
    port: 8000,
    protocol: 'http',
    adr: '苏州',
    outip: '198.51.100.7',
    timeout: 95,
  });
  expect(terminal.errors()).toContain('1 dropped: no usable address');
});

test('extract: a wrong key is explained in the language of the terminal, with the message of the service last', async () => {
  const dir = testFolder();
  const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic' }] });
  const source = sourceLine(sandbox, 'a', 'short-classic').replace(/password: "\w+"/, 'password: wrong');
  const file = join(dir, 'noria.yaml');
  writeFileSync(file, `sources:\n${source}\nstate: { dir: "${dir}/state" }\n`, { mode: 0o600 });
  const terminal = fakeTerminal({ env: { LANG: 'zh_CN.UTF-8' } });
  expect(await runProgram(['extract', 'a', '-c', file], terminal)).toBe(1);
  expect(terminal.errors()).toMatch(/^noria: 返回码 12001：密钥错误。[^（]+。（服务的消息：[^）]+）\n/);
});

test('link command: field names of the vendor cannot write to the terminal', async () => {
  const { url } = await openVendor(
    JSON.stringify({ 'a\n\u001b[31mlist': [{ ip: '192.0.2.1', port: 80, real_ip: '\u001b[1mx' }] }),
  );
  const { exitCode, out } = await link(url);
  expect(exitCode).toBe(0);
  expect(out).toContain('list      a\\u000a\\u001b[31mlist\n');
  expect(out).not.toContain('\u001b');
});

test('link command: refuses a folder that is a symbolic link, and keeps its calls in the home folder if there is one', async () => {
  const { url, calls } = await openVendor('192.0.2.1:80');
  const elsewhere = testFolder();
  symlinkSync(elsewhere, join(tmpdir(), `noria-link-${process.getuid?.()}`));
  const { exitCode, err } = await link(url);
  expect(exitCode).toBe(1);
  expect(err).toMatch(/^noria: the folder .*noria-link-\d+ is not a folder; remove it\n/);
  expect(calls).toEqual([]);
  const home = testFolder();
  mkdirSync(join(home, '.local', 'state', 'noria'), { recursive: true });
  const terminal = fakeTerminal({ env: { HOME: home } });
  expect(await runProgram(['link', url], terminal)).toBe(0);
  expect(readdirSync(join(home, '.local', 'state', 'noria', 'link'))).not.toEqual([]);
  expect(readdirSync(elsewhere)).toEqual([]);
});

test.each([
  ['http://customer-me-sessid-abc123-sesstime-10:s3cret@gw.vendor.example:8000', 'http'],
  ['customer-me-sessid-abc123-sesstime-10:s3cret@gw.vendor.example:8000', 'http'],
  ['socks5://customer-me-sessid-abc123-sesstime-10:s3cret@gw.vendor.example:8000/', 'socks5'],
])('link command: recognises the address of a gateway: %s', async (address, protocol) => {
  const { exitCode, out, err } = await link(address);
  expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
  expect(out).not.toContain('s3cret');
  const yaml = out.slice(out.indexOf('sources:'));
  const [source] = parseConfig(yaml, 'noria.yaml', { env: { GATEWAY_PASSWORD: 'x' } }).sources;
  expect(source).toMatchObject({
    product: 'gateway',
    host: 'gw.vendor.example',
    port: 8000,
    account: { username: 'customer-me-sessid-{session}-sesstime-10' },
    upstream: { protocol },
  });
});

test('link command: says what a gateway needs whose user name names no session', async () => {
  const { exitCode, err } = await link('http://me:s3cret@gw.vendor.example:8000');
  expect(exitCode).toBe(2);
  expect(err).toContain('names no session');
  expect(err).not.toContain('s3cret');
});

test('link command: recognises a file with a list, and names the lines that cannot be used', async () => {
  const file = join(testFolder(), 'proxies.txt');
  writeFileSync(file, '# ours\n192.0.2.1:80:me:s3cret\n192.0.2.1:80:me:s3cret\nnonsense\n');
  const { exitCode, out } = await link(file);
  expect(exitCode).toBe(0);
  expect(out).toContain('1 proxies, 1 dropped: no usable address, 1 dropped: named twice');
  expect(out).toContain('line 4 cannot be used');
  expect(out).not.toContain('s3cret');
  const [source] = parseConfig(out.slice(out.indexOf('sources:')), 'noria.yaml', { env: {} }).sources;
  expect(source).toMatchObject({ product: 'list', file, login: 'require' });
});

test('link command: the URL of a file with proxies becomes a list', async () => {
  const { url } = await openVendor('192.0.2.1:8000\n192.0.2.2:8000\n');
  const file = url.replace('/get', '/proxies.txt');
  const { exitCode, out } = await link(file);
  expect(exitCode).toBe(0);
  const yaml = out.slice(out.indexOf('sources:'));
  const [source] = parse(yaml).sources;
  expect(source).toEqual({
    ...{ name: 'list', product: 'list', url: file, refresh: '5m' },
    ...{ upstream: { protocol: 'http', auth: 'none' }, answer: { address: '{ip}:{port}' } },
  });
  expect(parseConfig(yaml, 'noria.yaml', { env: {} }).sources[0]).toMatchObject({ refreshMs: 300_000 });
  expect((await link(url)).out, 'any other URL is a link').toContain('product: link');
});
