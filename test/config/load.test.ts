import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { loadConfig, parseConfig } from '../../src/config/load.ts';
import { configOf, FILE, filesOf, problemsOf } from './files.ts';

const SMALL = `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: short-classic, instance: 202611210001000012, password: 0123456789 }]
`;

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'noria-config-'));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

test('load: unquoted digits keep every digit', () => {
  const [source] = parseConfig(SMALL, FILE, { env: {} }).sources;
  expect(source?.instance).toBe('202611210001000012');
  expect(source?.password?.reveal()).toBe('0123456789');
});

test('load: every key has its default', () => {
  const { sources, ...rest } = configOf();
  expect({ ...rest, warnings: [] }).toEqual({
    file: FILE,
    service: { baseUrl: 'https://extract.example.com', method: 'GET', timeoutMs: 10_000 },
    account: undefined,
    pool: {
      size: 20,
      fill: 'demand',
      idleAfterMs: 300_000,
      safetyMarginMs: 3000,
      minRemainingMs: 10_000,
      allowPrivateAddresses: false,
    },
    rotation: {
      strategy: 'round-robin',
      maxTunnelsPerMember: 0,
      maxUsesPerMember: 0,
      perHostSpacingMs: 0,
      sessionTtlMs: 600_000,
      maxSessionTtlMs: 86_400_000,
      maxSessionsPerClient: 1000,
    },
    dial: {
      attempts: 3,
      attemptTimeoutMs: 5000,
      hedgeAfter: 'auto',
      deadlineMs: 30_000,
      waitForMemberMs: 15_000,
      warm: 'auto',
    },
    health: { maxFailures: 2, quarantineMs: 10_000, check: undefined },
    targets: [],
    listeners: [
      {
        address: { kind: 'tcp', host: '127.0.0.1', port: 8888, lastPort: 8888 },
        protocols: ['http', 'socks5', 'socks4'],
        tls: undefined,
        users: [],
        allow: [],
        proxyProtocol: [],
        denyTargets: ['private', 'smtp'],
        idleTimeoutMs: 600_000,
        maxConnections: 10_000,
        source: undefined,
        session: 'none',
      },
    ],
    admin: { address: { kind: 'tcp', host: '127.0.0.1', port: 8889, lastPort: 8889 }, token: undefined },
    log: { level: 'info', format: 'auto', access: 'off' },
    notify: [],
    state: { dir: '/etc/noria/.noria' },
    shutdown: { drainTimeoutMs: 30_000 },
    workers: 1,
    warnings: [],
  });
  expect(sources).toHaveLength(1);
});

test('load: a section without keys is treated as absent', () => {
  const config = configOf(
    'params:\nupstream: ~',
    'pool: # nothing\nlisteners:\nadmin: null\nlog:\n  # level: debug\n',
  );
  expect(config.listeners).toHaveLength(1);
  expect(config.admin).toBeDefined();
  expect(config.pool.size).toBe(20);
});

test.each(['admin: off', 'admin: { address: off }'])('load: %s disables the admin server', (text) => {
  expect(configOf('', text).admin).toBeUndefined();
});

test.each(['state: off', 'state: { dir: off }'])('load: %s stores nothing', (text) => {
  expect(configOf('', text).state).toBeUndefined();
});

test('load: aliases and merge keys are followed, and keys of the map itself win in any position', () => {
  const { sources } = parseConfig(
    `service: { baseUrl: https://extract.example.com }
sources:
  - &city { name: city, product: short-classic, instance: 1, password: one, size: 5 }
  - { name: town, <<: *city, instance: 2 }
  - <<: [{ size: 7 }, *city]
    name: village
    instance: 3`,
    FILE,
    { env: {} },
  );
  const said = sources.map(({ name, instance, size, password }) => [
    name,
    instance,
    size,
    password?.reveal(),
  ]);
  expect(said).toEqual([
    ['city', '1', 5, 'one'],
    ['town', '2', 5, 'one'],
    ['village', '3', 7, 'one'],
  ]);
});

test('load: aliases that expand exponentially or endlessly are an error', () => {
  const lines = Array.from(
    { length: 30 },
    (_, index) => `a${index + 1}: &a${index + 1} [*a${index}, *a${index}]`,
  );
  const problems = problemsOf(() => parseConfig(['a0: &a0 [x]', ...lines].join('\n'), FILE, { env: {} }));
  expect(problems.some((problem) => problem.includes('aliases expand it to more than 20000 values'))).toBe(
    true,
  );
  const circle = problemsOf(() => parseConfig('service: &a { baseUrl: *a }', FILE, { env: {} }));
  expect(circle).not.toEqual([]);
});

test('load: references can be numbers, durations, words and secrets, and cannot add keys', () => {
  const { sources, pool, rotation } = parseConfig(
    `service: { baseUrl: "https://\${HOST}/" }
sources: [{ name: city, product: "\${PRODUCT:-short-classic}", instance: "\${ID}", password: "\${PASSWORD}" }]
pool:
  size: \${SIZE}
  idleAfter: \${IDLE:-1m}
  allowPrivateAddresses: "\${PRIVATE}"
rotation: { strategy: "\${STRATEGY}" }`,
    FILE,
    {
      env: {
        HOST: 'extract.example.com',
        ID: '42',
        PASSWORD: 'a: b\n# c'.replace('\n', ' '),
        SIZE: '7',
        PRIVATE: 'true',
        STRATEGY: 'random',
      },
    },
  );
  expect(sources[0]?.password?.reveal()).toBe('a: b # c');
  expect([sources[0]?.baseUrl, sources[0]?.instance]).toEqual(['https://extract.example.com', '42']);
  expect([pool.size, pool.idleAfterMs, pool.allowPrivateAddresses]).toEqual([7, 60_000, true]);
  expect(rotation.strategy).toBe('random');
});

test('load: accepts a byte order mark and CRLF', () => {
  const path = join(folder(), 'noria.yaml');
  writeFileSync(path, `\ufeff${SMALL.replaceAll('\n', '\r\n')}`, { mode: 0o600 });
  const config = loadConfig(path, { env: {} });
  expect(config.sources[0]?.name).toBe('city');
  expect(config.warnings).toEqual([]);
});

test('load: a file with secrets that every user can read is a warning at the first secret', () => {
  const path = join(folder(), 'noria.yaml');
  writeFileSync(path, SMALL);
  chmodSync(path, 0o644);
  const [warning, ...others] = loadConfig(path, { env: {} }).warnings;
  expect(warning).toMatchObject({ path: 'sources[0].password', line: 2 });
  expect(warning?.message).toContain(`contains a secret, and every user of this machine can read ${path}`);
  expect(others).toEqual([]);
  writeFileSync(path, SMALL.replace('0123456789', '"${PASSWORD}"'));
  expect(loadConfig(path, { env: { PASSWORD: 'x' } }).warnings).toEqual([]);
});

test.each([
  ['that does not exist', undefined, 'the file does not exist; check the path$'],
  ['that is a folder', '', 'cannot read the file: EISDIR.*; check the path and the permissions of the file$'],
  [
    'that is not UTF-8',
    Buffer.from([0x61, 0x3a, 0x20, 0xff]),
    'the file is not UTF-8 text; save it as UTF-8$',
  ],
  ['in UTF-16', Buffer.from('\ufeffpool: {}', 'utf16le'), 'the file is UTF-16 text; save it as UTF-8$'],
  [
    'in UTF-16 without a mark',
    Buffer.from('pool: {}', 'utf16le'),
    'the file is UTF-16 text; save it as UTF-8$',
  ],
  ['that is too large', Buffer.alloc(1024 * 1024 + 1, '#'), 'the file is larger than 1024 KiB'],
])('load: a file %s is one error', (_, content, message) => {
  const path = content === '' ? folder() : join(folder(), 'noria.yaml');
  if (typeof content === 'object') writeFileSync(path, content);
  expect(() => loadConfig(path)).toThrow(new RegExp(`^${path}: ${message}`));
  expect(problemsOf(() => loadConfig(path))).toHaveLength(1);
});

test('load: relative paths start at the folder of the file', () => {
  const files = filesOf({ '/etc/noria/secrets/city': 'from the file\r\n' }, []);
  const config = parseConfig(
    `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: free, instance: 1, passwordFile: secrets/city }]
state: { dir: ../../var/lib/noria }`,
    FILE,
    { env: {}, files },
  );
  expect(config.sources[0]?.password?.reveal()).toBe('from the file');
  expect(config.state?.dir).toBe('/var/lib/noria');
});

test('load: one line end after a secret in a file is removed, other white space is kept', () => {
  const read = (text: string) =>
    parseConfig(SMALL.replace('password: 0123456789', 'passwordFile: p'), FILE, {
      env: {},
      files: filesOf({ '/etc/noria/p': text }),
    }).sources[0]?.password?.reveal();
  expect(read('secret')).toBe('secret');
  expect(read('secret\n')).toBe('secret');
  expect(read(' secret \r\n')).toBe(' secret ');
  expect(problemsOf(() => read('secret\n\n'))).toEqual([
    'sources[0].passwordFile: the content of /etc/noria/p contains a line break or another control character; expected a password of 1 to 255 bytes without line breaks',
  ]);
  expect(problemsOf(() => read('\n'))[0]).toContain('the content of /etc/noria/p is empty');
});

test('load: a secret file that every user can read is a warning', () => {
  const files = filesOf({ '/run/p': 'x' }, ['/run/p']);
  const { warnings } = parseConfig(SMALL.replace('password: 0123456789', 'passwordFile: /run/p'), FILE, {
    env: {},
    files,
  });
  expect(warnings.map(({ path, message }) => [path, message])).toEqual([
    ['sources[0].passwordFile', 'every user of this machine can read /run/p; run chmod 600 on it'],
  ]);
});

test('load: the account has a password or its key, in place or in a file', () => {
  const read = (account: string) =>
    parseConfig(
      `service: { baseUrl: https://extract.example.com }\naccount: { username: someone, ${account} }`,
      FILE,
      {
        env: {},
        files: filesOf({ '/k': '83AA400AF464C76D\n', '/p': '12345678\n' }),
      },
    ).account?.key.reveal();
  const spellings = ['password: 12345678', 'key: 83aa400af464c76d', 'keyFile: /k', 'passwordFile: /p'];
  expect(spellings.map(read)).toEqual(spellings.map(() => '83aa400af464c76d'));
});

test('load: a configuration is frozen at every depth', () => {
  const config = configOf('params: { count: 3 }', 'listeners: [{ users: [{ username: a, password: b }] }]');
  const thawed: string[] = [];
  const walk = (value: unknown, path: string): void => {
    if (typeof value !== 'object' || value === null) return;
    if (!Object.isFrozen(value)) thawed.push(path);
    for (const [key, inner] of Object.entries(value)) walk(inner, `${path}.${key}`);
  };
  walk(config, 'config');
  expect(thawed).toEqual([]);
});

test('load: printing a configuration shows no secret', () => {
  const config = configOf(
    'upstream: { auth: { username: u, password: hunter2 } }',
    'admin: { token: hunter2 }',
  );
  for (const text of [inspect(config, { depth: 20 }), JSON.stringify(config)]) {
    expect(text).not.toContain('hunter2');
    expect(text).not.toContain('correct horse');
  }
});

test.each([
  ['pool：\n  size: 5\n', '1:5: the line contains the full-width colon ：; type : and a space in its place'],
  [
    'pool:\n  size：5\n',
    '2:3: pool: is a text; expected a map with the keys .*; it contains the full-width colon ：;',
  ],
  [
    'pool: { size: 5， idleAfter: 0 }\n',
    '1:16: the line contains the full-width comma ，; type , and a space',
  ],
  ['pool: { size：5 }\n', '1:13: pool: contains the full-width colon ：; type : and a space in its place'],
  [
    'pool：{ size：5 }',
    '1:1: the file is a text; expected .*; it contains the full-width colon ：; type : and a space',
  ],
  [
    'account: { username: a, password: “hunter2” }\n',
    '1:35: account.password: contains the quotation mark “; type " in',
  ],
  [
    'listeners:\n  - address: 127.0.0.1：8888\n',
    '2:14: listeners\\[0\\].address: .*; it contains the full-width colon',
  ],
])('load: names a full-width character, and what to type: %s', (text, message) => {
  const parse = () => parseConfig(text, 'noria.yaml', { env: {} });
  expect(parse).toThrow(new RegExp(`^noria.yaml:${message}`, 'm'));
  expect(parse).not.toThrow(/hunter2/);
});

test('load: full-width characters are allowed in quotes, comments and values that may have them', () => {
  const text = `service: { baseUrl: https://extract.example.com } # 说明：好，“好”
sources: [{ name: city, product: short-classic, instance: 1, password: "“密码：”" }]
dial: { viaFile: /var/lib/代理：一 }`;
  const files = filesOf({ '/var/lib/代理：一': 'socks5://10.0.0.1:1080' }, []);
  const [source] = parseConfig(text, 'noria.yaml', { env: {}, files }).sources;
  expect(source?.password?.reveal()).toBe('“密码：”');
});
