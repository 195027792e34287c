/**
 * Everything that noria emits is searched for every secret that noria was given: its output at log level trace, answers
 * to clients, all answers of the admin API with page, metrics and events, its state folder, and the output of commands.
 *
 * A separate noria process has members that require credentials, a source with a wrong key, and a source without a
 * service. Clients send right, wrong and malformed credentials. The service repeats keys in its answers.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, WORKERS_LINE } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { type NoriaProcess, runNoria, testFolder, writeIn } from './noria-process.ts';

/** The secrets contain characters that URLs, YAML, JSON and regular expressions escape in different ways. */
const SECRETS = {
  instancePassword: 'city+pass/word&1$',
  keyedAkey: '0f1e2d3c4b5a6978',
  upstreamPassword: 'up stream="2"',
  wrongPassword: 'harbour(pass)[3]',
  deadPassword: 'dead%pass#4',
  accountPassword: 'account:pass@5',
  userPassword: 'worker*pass?6',
  adminToken: 'admin-token-7.~',
  typedPassword: 'typed-wrong-8',
  typedToken: 'guessed-token-9',
  cookie: 'cookie-value-11',
  query: 'query-value-12',
} as const;

/** A text of a client that is not secret: the log may quote it, answers may not. */
const ROUTING_VALUE = 'routingvalue10';

const sixteen = (password: string) => createHash('md5').update(password).digest('hex').slice(8, 24);

/** Returns a secret in all encodings in which it may appear. */
function formsOf(secret: string): string[] {
  const hash = createHash('md5').update(secret).digest('hex');
  const base64 = Buffer.from(secret).toString('base64').replace(/=+$/, '');
  // The end of `user:secret` in base64 depends on the length of the user name.
  const tails = [1, 2].map((shift) => {
    const shifted = Buffer.from('x'.repeat(shift) + secret)
      .toString('base64')
      .replace(/=+$/, '');
    return shifted.slice(4, -1);
  });
  const written = [
    secret,
    encodeURIComponent(secret),
    JSON.stringify(secret).slice(1, -1),
    base64.slice(0, -1),
    ...tails,
  ];
  return [...written, hash, hash.slice(8, 24)];
}

const FORMS = Object.entries(SECRETS).flatMap(([name, secret]) =>
  formsOf(secret).map((form) => ({ name, form })),
);

/** Returns the names and the encodings of the secrets that a text contains. */
function secretsIn(text: string): string[] {
  return FORMS.filter(({ form }) => text.includes(form)).map(({ name, form }) => `${name} as ${form}`);
}

/**
 * Sends the messages, each after an answer to the previous one. Returns everything received until noria closes the
 * connection.
 */
async function converse(port: number, ...messages: (string | Uint8Array)[]): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  const closed = once(socket, 'close');
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
  });
  for (const message of messages) {
    const answered = Promise.race([once(socket, 'data'), closed]);
    socket.write(message);
    await answered;
  }
  await closed;
  return received;
}

const basic = (user: string, password: string) =>
  `Proxy-Authorization: Basic ${Buffer.from(`${user}:${password}`).toString('base64')}\r\n`;

const socksLogin = (user: string, password: string) =>
  Buffer.concat([
    Buffer.from([1, user.length]),
    Buffer.from(user),
    Buffer.from([password.length]),
    Buffer.from(password),
  ]);

async function startJourney() {
  const { instancePassword, upstreamPassword, keyedAkey, wrongPassword, deadPassword } = SECRETS;
  const account = { username: 'operator', password: SECRETS.accountPassword };
  const sandbox = await openTestSandbox({
    account,
    instances: [
      { product: 'short-classic', password: instancePassword, auth: 'password', paceMs: 0 },
      { product: 'short-socks5', paceMs: 0 },
      { product: 'long-residential', paceMs: 0 },
      { product: 'exclusive', paceMs: 0 },
    ],
  });
  const { url } = sandbox;
  const idOf = (product: Parameters<typeof sandbox.instance>[0]) => sandbox.instance(product).id;
  // The service, and a firewall in between, repeat the key in their answers.
  sandbox.rules.add({
    operation: 'long-residential',
    times: 1,
    answer: { body: `<html>blocked: akey=${sixteen(wrongPassword)}</html>`, contentType: 'text/html' },
  });
  const port = await freePort();
  const adminPort = await freePort();
  const folder = testFolder();
  const quoted = (text: string) => JSON.stringify(text);
  const config = `
service: { baseUrl: "${url}" }
account: { username: operator, password: ${quoted(SECRETS.accountPassword)} }
sources:
  - { name: city, product: short-classic, instance: "${idOf('short-classic')}", password: ${quoted(instancePassword)}, size: 3 }
  - name: keyed
    product: short-socks5
    instance: "${idOf('short-socks5')}"
    akey: ${quoted(keyedAkey)}
    upstream: { auth: { username: upstream-user, password: ${quoted(upstreamPassword)} } }
  - { name: wrong, product: long-residential, instance: "${idOf('long-residential')}", password: ${quoted(wrongPassword)}, interval: 1s }
  - { name: dead, product: exclusive, baseUrl: "http://127.0.0.1:1", instance: "${idOf('exclusive')}", password: ${quoted(deadPassword)} }
pool: { fill: size, allowPrivateAddresses: true, safetyMargin: 0s, minRemaining: 0s }
dial: { waitForMember: 1s }
listeners:
  - { address: "127.0.0.1:${port}", denyTargets: [], users: [{ username: worker, password: ${quoted(SECRETS.userPassword)} }] }
admin: { address: "127.0.0.1:${adminPort}", token: ${quoted(SECRETS.adminToken)} }
state: { dir: ${quoted(join(folder, 'state'))} }
shutdown: { drainTimeout: 1s }
${WORKERS_LINE}
`;
  const file = writeIn(folder, 'noria.yaml', config);
  const noria = runNoria(['run', '-c', file, '--log-level', 'trace']);
  await noria.line('noria is running');
  return { sandbox, noria, port, folder, file, config, admin: `http://127.0.0.1:${adminPort}` };
}

/** Returns noria's answers to clients that it accepts, and to clients that it refuses for each possible reason. */
async function askAsClients(port: number, targetUrl: string): Promise<string[]> {
  const { userPassword, typedPassword, cookie, query } = SECRETS;
  const { host } = new URL(targetUrl);
  const close = 'Connection: close\r\nProxy-Connection: close\r\n';
  const get = (path: string, credentials: string, more = '') =>
    `GET ${targetUrl}${path} HTTP/1.1\r\nHost: ${host}\r\n${credentials}${close}${more}\r\n`;
  const tunnel = (target: string, credentials: string) =>
    `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${credentials}\r\n`;
  const inner = `GET /ip HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
  const right = basic('worker', userPassword);
  const [name = '', targetPort = ''] = host.split(':');
  const socksTarget = Buffer.concat([
    Buffer.from([5, 1, 0, 3, name.length]),
    Buffer.from(name),
    Buffer.from([Number(targetPort) >> 8, Number(targetPort) & 255]),
  ]);
  const hello = Buffer.from([5, 1, 2]);
  return Promise.all([
    converse(port, get(`/ip?key=${query}`, right, `Cookie: a=${cookie}\r\n`)),
    converse(port, tunnel(host, right), inner),
    converse(port, get('/ip', basic('worker', typedPassword))),
    converse(port, get('/ip', '')),
    converse(port, get('/ip', basic(`worker-life-${ROUTING_VALUE}`, userPassword))),
    converse(port, get('/ip', basic('worker-source-wrong', userPassword))),
    converse(port, tunnel(`nowhere.invalid:443`, right)),
    converse(port, `GET / HTTP/1.1\r\n${right}Cookie: a=${cookie}\r\nbroken\r\n\r\n`),
    converse(port, hello, socksLogin('worker', userPassword), socksTarget, inner),
    converse(port, hello, socksLogin('worker', typedPassword)),
    converse(port, hello, socksLogin(`worker-life-${ROUTING_VALUE}`, userPassword)),
  ]);
}

/** Returns the answers of the admin API with their headers: to every GET, to wrong tokens and to malformed bodies. */
async function askAsOperator(admin: string): Promise<string[]> {
  const { adminToken, typedToken, userPassword } = SECRETS;
  const ask = async (path: string, token: string, init: RequestInit = {}) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const answer = await fetch(`${admin}${path}`, { ...init, headers });
    return `${answer.status}\n${[...answer.headers].join('\n')}\n${await answer.text()}`;
  };
  const description = (await (
    await fetch(`${admin}/openapi.json`, { headers: { authorization: `Bearer ${adminToken}` } })
  ).json()) as { paths: Record<string, { get?: object }> };
  const reads = Object.entries(description.paths)
    .filter(([path, { get }]) => get !== undefined && !path.includes('{') && path !== '/api/events')
    .map(([path]) => path);
  expect(reads.length).toBeGreaterThan(10);
  const files = ['main.js', 'uplot.js', 'wheel.css'].map((file) => `/page/${file}`);
  return Promise.all([
    ...[...reads, ...files].map((path) => ask(path, adminToken)),
    ask('/api/status', typedToken),
    ask(`/api/members/${encodeURIComponent(userPassword)}/evict`, typedToken, { method: 'POST' }),
    ask('/api/reports', adminToken, { method: 'POST', body: `{"password": "${SECRETS.instancePassword}` }),
    ask('/api/reports', adminToken, {
      method: 'POST',
      body: `{"verdict": "${SECRETS.upstreamPassword.replaceAll('"', '')}"}`,
    }),
  ]);
}

/** Reads the event stream until it is aborted. */
async function followEvents(admin: string, signal: AbortSignal): Promise<string> {
  const headers = { authorization: `Bearer ${SECRETS.adminToken}` };
  const answer = await fetch(`${admin}/api/events`, { headers, signal });
  const reader = (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader();
  let received = '';
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) received += part.value;
  } catch {
    // ignored: aborted by the test
  }
  return received;
}

async function runToEnd(args: readonly string[]): Promise<string> {
  const run = runNoria(args);
  await run.ended;
  return run.out() + run.err();
}

const sourceStates = (noria: NoriaProcess) =>
  new Map(noria.lines('source state changed').map(({ source, to }) => [source, to]));

test('secrets: the search finds each secret in every form', () => {
  for (const [name, secret] of Object.entries(SECRETS)) {
    const credentials = ['u', 'us', 'use'].map((user) => Buffer.from(`${user}:${secret}`).toString('base64'));
    for (const text of [secret, JSON.stringify({ secret }), `?akey=${sixteen(secret)}&`, ...credentials]) {
      expect(
        secretsIn(text).some((found) => found.startsWith(name)),
        `${name} in ${text}`,
      ).toBe(true);
    }
  }
});

test('secrets: no output of noria contains one', async () => {
  const { sandbox, noria, port, folder, file, config, admin } = await startJourney();
  expect(secretsIn(config).length, 'the search works on the file itself').toBeGreaterThan(5);
  const ending = new AbortController();
  const events = followEvents(admin, ending.signal);
  await until('each source has reached its state', () => {
    const states = sourceStates(noria);
    return (
      noria.lines('draw done').some(({ source }) => source === 'city') &&
      states.get('keyed') === 'halted' &&
      states.get('dead') === 'backoff' &&
      states.get('wrong') === 'backoff'
    );
  });
  sandbox.rules.add({
    operation: 'long-residential',
    times: 1,
    answer: { code: '12003', msg: `akey=${sixteen(SECRETS.wrongPassword)} is wrong` },
  });
  await fetch(`${admin}/api/sources/wrong/resume`, {
    method: 'POST',
    headers: { authorization: `Bearer ${SECRETS.adminToken}`, 'content-type': 'application/json' },
  });
  const answered = await askAsClients(port, sandbox.targetUrl);
  expect(answered.slice(0, 2).every((answer) => answer.startsWith('HTTP/1.1 200'))).toBe(true);
  expect(answered[2]).toMatch(/^HTTP\/1\.1 407/);
  expect(answered[4]).toMatch(/^HTTP\/1\.1 400/);
  expect(answered[8], 'SOCKS5 accepted').toContain('HTTP/1.1 200');
  expect(answered[9], 'SOCKS5 refused').toBe('\u0005\u0002\u0001\u0001');
  expect(answered.join('\n')).not.toContain(ROUTING_VALUE);
  const answers = await askAsOperator(admin);

  writeIn(folder, 'noria.yaml', config.replace('size: 3', 'siz: 3').replace('interval: 1s', 'interval: 1ms'));
  noria.child.kill('SIGHUP');
  await noria.line('configuration refused; the previous one stays in force');
  writeIn(folder, 'noria.yaml', config);
  const printed = await Promise.all([
    runToEnd(['check', '-c', file]),
    runToEnd(['status', '-c', file]),
    runToEnd(['instances', '-c', file]),
    runToEnd(['status', '--admin', `http://me:${encodeURIComponent(SECRETS.userPassword)}@127.0.0.1:1`]),
  ]);
  expect(printed[1]).toContain('keyed');
  ending.abort();
  noria.child.kill('SIGTERM');
  expect(await noria.ended).toEqual([0, null]);
  const kept = readdirSync(join(folder, 'state')).map((name) =>
    readFileSync(join(folder, 'state', name), 'utf8'),
  );
  expect(kept.length).toBeGreaterThan(0);

  const outputs: Record<string, string> = {
    'log and output': noria.out() + noria.err(),
    clients: answered.join('\n'),
    admin: answers.join('\n'),
    events: await events,
    state: kept.join('\n'),
    commands: printed.join('\n'),
  };
  for (const [where, text] of Object.entries(outputs)) {
    expect(text.length, where).toBeGreaterThan(100);
    expect(secretsIn(text), where).toEqual([]);
  }
});
