import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { configOf, problemsOf } from './files.ts';

const TLS = 'test/fixtures/tls';

/** A configuration whose listener uses these fixtures, in a temporary folder. */
function tlsOf(cert: string, key: string) {
  const folder = mkdtempSync(join(tmpdir(), 'noria-config-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  copyFileSync(`${TLS}/${cert}`, join(folder, 'cert.pem'));
  copyFileSync(`${TLS}/${key}`, join(folder, 'key.pem'));
  chmodSync(join(folder, 'key.pem'), 0o600);
  const text = `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: free, instance: 1, akey: 83aa400af464c76d }]
listeners: [{ tls: { cert: cert.pem, key: ./key.pem } }]`;
  return { folder, read: () => parseConfig(text, join(folder, 'noria.yaml'), { env: {} }) };
}

test('listener config: certificate and key are read from the folder of the configuration', () => {
  const { folder, read } = tlsOf('first.cert.pem', 'first.key.pem');
  const { listeners, warnings } = read();
  expect(listeners[0]?.tls).toMatchObject({
    files: { cert: join(folder, 'cert.pem'), key: join(folder, 'key.pem') },
    cert: readFileSync(`${TLS}/first.cert.pem`, 'utf8'),
  });
  expect(listeners[0]?.tls?.key.reveal()).toBe(readFileSync(`${TLS}/first.key.pem`, 'utf8'));
  expect(warnings).toEqual([]);
});

test('listener config: a private key that every user can read is a warning', () => {
  const { folder, read } = tlsOf('first.cert.pem', 'first.key.pem');
  chmodSync(join(folder, 'key.pem'), 0o644);
  expect(read().warnings.map(({ path }) => path)).toEqual(['listeners[0].tls.key']);
});

test('listener config: a certificate and a key that do not match are an error', () => {
  const problems = problemsOf(tlsOf('first.cert.pem', 'second.key.pem').read);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatch(/^listeners\[0\]\.tls: the certificate and the key cannot be used together: /);
});

test('listener config: several listeners can each have users, lists and a source', () => {
  const { listeners } = configOf(
    '',
    `listeners:
  - address: "[::]:8888"
    users: [{ username: alice-b, password: one }, { username: bob, password: two }]
    allow: [10.0.0.0/8, "2001:db8::/32", 192.0.2.1]
    denyTargets: [smtp, "*.example.com", ":6000-6010"]
    protocols: [socks5]
    source: city
    session: client-ip
  - { address: "127.0.0.1:24000-24019", session: port, denyTargets: [] }
  - { address: "fd:3" }`,
  );
  expect(listeners.map(({ address, users, source }) => [address.kind, users.length, source])).toEqual([
    ['tcp', 2, 'city'],
    ['tcp', 0, undefined],
    ['fd', 0, undefined],
  ]);
  expect(listeners[0]?.users.map(({ username, password }) => [username, password.reveal()])).toEqual([
    ['alice-b', 'one'],
    ['bob', 'two'],
  ]);
  expect(listeners[0]?.allow).toEqual(['10.0.0.0/8', '2001:db8::/32', '192.0.2.1']);
  expect(listeners[1]?.denyTargets).toEqual([]);
});

test('listener config: the errors of one listener hide no errors of the others', () => {
  const problems = problemsOf(() =>
    configOf('', 'listeners: [{ address: nowhere }, { session: nix }, { address: "0.0.0.0:1" }]'),
  );
  expect(problems.map((problem) => problem.split(':')[0])).toEqual([
    'listeners[0].address',
    'listeners[1].session',
    'listeners[2].address',
  ]);
});

test.each([
  ['http://127.0.0.1:8888', 'listeners[0].address'],
  ['http://localhost:8888', 'listeners[0].address'],
  ['socks5://[::ffff:127.0.0.1]:8888', 'listeners[0].address'],
  ['http://127.0.0.1:8889', 'admin.address'],
])('config: %s as a front proxy is an address of noria itself', (url, own) => {
  const more = `listeners: [{ address: "127.0.0.1:8888" }]\ndial: { via: "${url}" }`;
  const message = `dial.via: is an address of noria itself (${own})`;
  expect(problemsOf(() => configOf('', more))).toEqual([expect.stringContaining(message)]);
});

test('config: service.via is no address of noria itself', () => {
  const text = 'service: { baseUrl: "http://a.example", via: "http://127.0.0.1:8889" }\nsources: []';
  const problems = problemsOf(() => parseConfig(text, 'noria.yaml', { env: {} }));
  expect(problems).toContainEqual(
    expect.stringContaining('service.via: is an address of noria itself (admin.address)'),
  );
});

test('config: the ports beside a listener may be those of a front proxy', () => {
  const { dial } = configOf('', 'dial: { via: "http://127.0.0.1:8890" }');
  expect(dial.via?.port).toBe(8890);
});
