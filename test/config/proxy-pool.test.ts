import { expect, test } from 'vitest';
import { configOf, problemsOf } from './files.ts';

const problems = (more: string) => problemsOf(() => configOf('', more));

test('proxyPool config: without a listener for its ports, one is added on loopback', () => {
  const { listeners, proxyPool } = configOf('', 'proxyPool: { ports: 24000-24009 }');
  expect(proxyPool).toEqual({
    address: { kind: 'tcp', host: '127.0.0.1', port: 5010, lastPort: 5010 },
    ports: { first: 24_000, last: 24_009 },
  });
  expect(listeners.map(({ address, session, users }) => [address, session, users])).toEqual([
    [{ kind: 'tcp', host: '127.0.0.1', port: 8888, lastPort: 8888 }, 'none', []],
    [{ kind: 'tcp', host: '127.0.0.1', port: 24_000, lastPort: 24_009 }, 'port', []],
  ]);
});

test('proxyPool config: a listener that has the ports is used', () => {
  const listener = '{ address: "0.0.0.0:24000-24100", session: port, users: [{ username: a, password: b }] }';
  const { listeners } = configOf(
    '',
    `listeners: [${listener}]\nproxyPool: { address: "0.0.0.0:5010", ports: 24000-24009 }`,
  );
  expect(listeners).toHaveLength(1);
});

test.each([
  ['listeners: [{ address: "127.0.0.1:24000-24019" }]', 'proxyPool.ports: listeners[0] has these ports, but'],
  [
    'listeners: [{ address: "127.0.0.1:24010", session: port }]',
    'proxyPool.ports: 127.0.0.1:24000-24019 conflicts with listeners[0].address',
  ],
  [
    'admin: { address: "127.0.0.1:24003" }',
    'proxyPool.ports: 127.0.0.1:24000-24019 conflicts with admin.address',
  ],
])('proxyPool config: %s cannot serve its ports', (more, message) => {
  expect(problems(`${more}\nproxyPool: {}`)).toEqual([expect.stringContaining(message)]);
});

test.each(['0.0.0.0:5010', '192.0.2.7:5010'])(
  'proxyPool config: %s needs a listener with users',
  (address) => {
    expect(problems(`proxyPool: { address: "${address}" }`)).toEqual([
      `proxyPool.address: other machines can reach ${address}, and the listener on proxyPool.ports has no users; add a listener on these ports, with users and session: port, or listen on 127.0.0.1`,
    ]);
    const listener = '{ address: "127.0.0.1:24000-24019", session: port }';
    expect(problems(`listeners: [${listener}]\nproxyPool: { address: "${address}" }`)).toEqual([
      `proxyPool.address: other machines can reach ${address}, and the listener on proxyPool.ports has no users; add users to listeners[0], or listen on 127.0.0.1`,
    ]);
  },
);

test.each([
  ['24000-23999', 'has a port range that ends before it begins'],
  ['0-9', 'has a port range that begins at 0'],
  ['0', 'has the port 0'],
  ['1-1001', 'has a range of more than 1000 ports'],
  ['127.0.0.1:24000', 'is not a range of ports'],
])('proxyPool config: ports %s are refused', (ports, wrong) => {
  expect(problems(`proxyPool: { ports: "${ports}" }`)).toEqual([
    `proxyPool.ports: "${ports}" ${wrong}; expected a range of ports such as 24000-24019, or one port`,
  ]);
});
