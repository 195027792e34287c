import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { findAdminTarget } from '../../src/commands/admin-client.ts';
import { runProgram } from '../../src/commands/program.ts';
import { openTestAdmin } from '../admin/open-test-admin.ts';
import { runNoria, testFolder, writeIn } from '../journeys/noria-process.ts';
import { openTestSandbox, sourceLine, startNoria } from '../support/noria.ts';
import { fakeTerminal } from './fake-terminal.ts';

test.each([
  ['18889', 'http://127.0.0.1:18889'],
  [':18889', 'http://127.0.0.1:18889'],
  ['localhost', 'http://localhost:8889'],
  ['localhost:18889/', 'http://localhost:18889'],
  ['//localhost:18889', 'http://localhost:18889'],
  ['noria.example.com', 'http://noria.example.com:8889'],
  ['[::1]:18889', 'http://[::1]:18889'],
  ['::1', 'http://[::1]:8889'],
  ['0.0.0.0:18889', 'http://127.0.0.1:18889'],
  ['http://localhost:8889/api/status', 'http://localhost:8889'],
  ['https://noria.example.com', 'https://noria.example.com'],
])('admin target: --admin %s means %s', (text, origin) => {
  expect(findAdminTarget({ admin: text }, {})).toMatchObject({ origin, givenBy: '--admin' });
  expect(findAdminTarget({}, { NORIA_ADMIN: text })).toMatchObject({ origin, givenBy: 'NORIA_ADMIN' });
});

test.each([
  ['0', /--admin 0: a port is from 1 to 65535/],
  ['99999', /--admin 99999: a port is from 1 to 65535/],
  ['', /--admin : this is not a host with a port/],
  ['host:port', /--admin host:port: this is not a host with a port/],
  [
    '*:8889',
    /this is not a host with a port from 1 to 65535; expected for example 8889, 127\.0\.0\.1:8889 or https:/,
  ],
  ['ftp://x', /the scheme must be http or https/],
  ['http://', /this is not a URL/],
  [
    'http://me:river-stone@x',
    /^--admin: remove the user name and password; noria reads the token from NORIA_ADMIN_TOKEN/,
  ],
  ['me:river-stone@x', /^--admin: this is not a host with a port/],
])('admin target: --admin %s is refused with an example', (text, expected) => {
  const find = () => findAdminTarget({ admin: text }, {});
  expect(find).toThrow(
    expect.objectContaining({ code: 'bad-usage', message: expect.stringMatching(expected) }),
  );
  expect(find).not.toThrow(/river-stone/);
});

const BROKEN_SOURCES = 'sources: [{ name: a, product: nothing, password: "${UNSET_PASSWORD}" }]';

function configFile(admin: string): string {
  return writeIn(testFolder(), 'noria.yaml', `${BROKEN_SOURCES}\nadmin: ${admin}\n`);
}

test('admin target: a configuration needs no variable and no secret outside its admin section', () => {
  const file = configFile('{ address: "[::]:18889", token: "${ADMIN_TOKEN}" }');
  expect(findAdminTarget({ config: file }, { ADMIN_TOKEN: 'river-stone' })).toMatchObject({
    origin: 'http://[::1]:18889',
    givenBy: `admin.address of ${file}`,
    tokenNote: `admin.token of ${file}`,
  });
  const unset = findAdminTarget({ config: file }, {});
  expect(unset.token).toBeUndefined();
  expect(unset.tokenNote).toMatch(/the environment variable ADMIN_TOKEN is not set/);
  expect(findAdminTarget({ config: file }, { NORIA_ADMIN_TOKEN: 'river-stone\n' }).token?.reveal()).toBe(
    'river-stone',
  );
  expect(findAdminTarget({ config: file, admin: '1' }, {}).origin).toBe('http://127.0.0.1:1');
  expect(findAdminTarget({ config: configFile('{}') }, {}).origin).toBe('http://127.0.0.1:8889');
});

test('admin target: reads the token from its file', () => {
  const folder = testFolder();
  writeIn(folder, 'token', 'river-stone\n');
  const file = writeIn(folder, 'noria.yaml', 'admin: { tokenFile: ./token }\n');
  expect(findAdminTarget({ config: file }, {}).token?.reveal()).toBe('river-stone');
  const missing = writeIn(folder, 'other.yaml', 'admin: { tokenFile: ./nothing }\n');
  expect(findAdminTarget({ config: missing }, {}).tokenNote).toMatch(
    /nothing: the file does not exist; check the path/,
  );
});

test.each([
  ['{ address: off }', 'bad-usage', /admin is off/],
  ['off', 'bad-usage', /admin is off/],
  [
    '{ address: "127.0.0.1:0" }',
    'bad-usage',
    /has no fixed port: give --admin the address that the daemon's log shows/,
  ],
  ['{ address: "${ADMIN_ADDRESS}" }', 'bad-config', /admin\.address: .*ADMIN_ADDRESS is not set/],
  ['{ address: nowhere }', 'bad-config', /admin\.address has no port; expected off or host:port/],
  ['{ address: "x', 'bad-config', /noria\.yaml:\d+:\d+: invalid YAML/],
] as const)('admin target: admin: %s is refused with %s', (admin, code, expected) => {
  const file = configFile(admin);
  expect(() => findAdminTarget({ config: file }, {})).toThrow(
    expect.objectContaining({ code, message: expect.stringMatching(expected) }),
  );
});

test('admin target: without options a command reads ./noria.yaml, and works also when that is invalid', async () => {
  const { port } = await openTestAdmin({ token: 'river-stone' });
  const folder = testFolder();
  writeIn(
    folder,
    'noria.yaml',
    `${BROKEN_SOURCES}\nadmin: { address: "0.0.0.0:${port}", token: river-stone }\n`,
  );
  const status = runNoria(['status', '--json'], { cwd: folder });
  expect(await status.ended, status.err()).toEqual([0, null]);
  writeIn(folder, 'noria.yaml', 'admin: { address: nowhere }\n');
  const broken = runNoria(['status', '--admin', String(port)], {
    cwd: folder,
    env: { NORIA_ADMIN_TOKEN: 'river-stone' },
  });
  expect(await broken.ended, broken.err()).toEqual([0, null]);
});

async function run(argv: readonly string[], env: Record<string, string> = {}) {
  const terminal = fakeTerminal({ env });
  const code = await runProgram(argv, terminal);
  return { code, out: terminal.printed(), err: terminal.errors() };
}

/** Every command that sends a request to a daemon. */
const COMMANDS = ['status', 'status --watch', 'members', 'sessions', 'pause city', 'reload'];

test.each(COMMANDS)('admin target: noria %s names a missing and a wrong token', async (command) => {
  const { url, backend } = await openTestAdmin({ token: 'river-stone' });
  const words = [...command.split(' '), '--admin', url];
  const missing = await run(words);
  expect({ ...missing, err: '' }).toEqual({ code: 2, out: '', err: '' });
  expect(missing.err).toMatch(
    /requires a token: set NORIA_ADMIN_TOKEN, or give the configuration file of that noria with -c/,
  );
  const wrong = await run(words, { NORIA_ADMIN_TOKEN: 'river-sand' });
  expect(wrong.code).toBe(2);
  expect(wrong.err).toMatch(/refuses the token \(NORIA_ADMIN_TOKEN\)/);
  expect(wrong.err).not.toContain('river-sand');
  expect(backend.commands).toEqual([]);
});

/** Opens a server that handles each connection with `onConnection`. */
async function openServer(onConnection: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket.on('error', () => {}));
    onConnection(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const answerWith = (text: string) => (socket: Socket) => {
  socket.once('data', () => socket.end(text));
};
const http = (body: string) =>
  `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`;

test.each([
  ['another web server', answerWith(http('<html>')), '', /the answer from \S+ is not from noria: status 200/],
  [
    'another version',
    answerWith(http('{"version":"9.9.9"}')),
    '',
    /is from noria 9\.9\.9, and this command is noria /,
  ],
  ['SSH', answerWith('SSH-2.0-OpenSSH\r\n'), '', /the server does not speak HTTP/],
  [
    'a server that speaks TLS',
    (socket: Socket) => {
      socket.once('data', () => socket.resetAndDestroy());
    },
    '',
    /if it speaks TLS, use https:\/\//,
  ],
  [
    'https:// to a plain server',
    answerWith('HTTP/1.1 400 Bad Request\r\n\r\n'),
    'https://',
    /the server does not speak TLS; use http:\/\//,
  ],
  [
    'a host name that does not exist',
    () => {},
    'http://noria.invalid:1/',
    /no answer from http:\/\/noria\.invalid:1 \(--admin\): /,
  ],
] as const)('admin target: the error names the cause: %s', async (_, onConnection, prefix, expected) => {
  const address = await openServer(onConnection);
  const admin = prefix.endsWith('/') && prefix.length > 8 ? prefix : `${prefix}${address}`;
  const { code, err } = await run(['status', '--admin', admin]);
  expect(err).toMatch(expected);
  expect(code).toBe(3);
});

test.each(['status', 'reload'])('admin target: noria %s gives up on a daemon that hangs', async (command) => {
  const address = await openServer(() => {});
  const { code, err } = await run([command, '--admin', address]);
  expect(err).toMatch(/no answer from \S+ \(--admin\): timeout after 2 s/);
  expect(code).toBe(3);
});

test('admin target: the error says when --admin is a proxy port of noria', async () => {
  const sandbox = await openTestSandbox({ members: 2 });
  const noria = await startNoria({ sources: [sourceLine(sandbox, 'city', 'short-classic', 'size: 1')] });
  const { code, err } = await run(['status', '--admin', noria.proxy]);
  expect(err).toMatch(/is a proxy port of noria, not its admin address/);
  expect(code).toBe(3);
});
