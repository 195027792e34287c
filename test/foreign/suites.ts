/** The suites, the change that puts noria into each, and the floor of each. README.md has the suites that cannot be fetched. */
import { resolve } from 'node:path';
import type { Edit, Place, Sdist, Suite } from './suite.ts';

const [CERTIFICATE, KEY] = ['cert', 'key'].map((part) =>
  resolve(import.meta.dirname, `../fixtures/tls/proxy.${part}.pem`),
);

const pytest = ({ python, results }: Place, ...args: string[]): readonly [string, ...string[]] => [
  python,
  '-m',
  'pytest',
  '-p',
  'no:cacheprovider',
  `--junitxml=${results}`,
  ...args,
];

/** python-socks, aiohttp-socks and httpx-socks have the same tests/config.py. */
const SOCKS_LISTENERS = [
  'address: "127.0.0.1:7780", users: [{ username: admin, password: admin }]',
  'address: "[::1]:7780", users: [{ username: admin, password: admin }]',
  'address: "127.0.0.1:7781"',
  'address: "127.0.0.1:7782"',
  'address: "127.0.0.1:7783"',
  'address: "127.0.0.1:7784", users: [{ username: admin, password: admin }]',
  `address: "127.0.0.1:7785", users: [{ username: admin, password: admin }], tls: { cert: "${CERTIFICATE}", key: "${KEY}" }`,
];

/** Members of the sandbox resolve names under `.example` alone. */
const SOCKS_EDITS: readonly Edit[] = [
  { file: 'tests/config.py', from: 'target.example.com', to: 'target.example' },
];

const httpxSocks: Sdist = { registry: 'pypi', package: 'httpx-socks', version: '0.13.1' };

const socksSuite = {
  edits: SOCKS_EDITS,
  copies: [['python/proxy_server.py', 'tests/proxy_server.py']],
  listeners: () => SOCKS_LISTENERS,
  environment: () => ({ NORIA_CERTIFICATE: CERTIFICATE ?? '' }),
  report: 'junit',
} as const;

const REFUSES_ITSELF =
  "chains two of the suite's proxies: here both are the same noria, which refuses to dial its own listener";

export const SUITES: readonly Suite[] = [
  {
    name: 'PySocks',
    source: { registry: 'pypi', package: 'PySocks', version: '1.7.1' },
    edits: [
      {
        file: 'test/test_pysocks.py',
        from: "PROXY_HOST_IP = '127.0.0.2'",
        to: "PROXY_HOST_IP = '127.0.0.1'",
      },
      {
        file: 'test/test_pysocks.py',
        from: '    server = Popen(cmd, shell=True)\n    server.wait()',
        to: '',
      },
    ],
    copies: [['python/test_server.py', 'test_server.py']],
    listeners: () => [7774, 7775, 7776].map((port) => `address: "127.0.0.1:${port}"`),
    // The tests compare the address that the target sees with the proxy's.
    ownExits: false,
    command: (place) => pytest(place, 'test'),
    report: 'junit',
    floor: 16,
    servedAtLeast: 14,
    known: [
      { tests: /connect_timeout/, reason: 'expects that packets to 10.0.0.0 are lost; no route leads there' },
    ],
  },
  {
    ...socksSuite,
    name: 'python-socks',
    source: { registry: 'pypi', package: 'python-socks', version: '3.2.1' },
    command: (place) => pytest(place, 'tests'),
    floor: 383,
    servedAtLeast: 300,
    known: [{ tests: /test_proxy_chain/, reason: REFUSES_ITSELF }],
  },
  {
    ...socksSuite,
    name: 'aiohttp-socks',
    source: { registry: 'pypi', package: 'aiohttp-socks', version: '0.12.0' },
    // The archive has the tests without the files that they import. httpx-socks has the same ones.
    support: [{ source: httpxSocks, folder: 'tests' }],
    edits: [
      ...SOCKS_EDITS,
      // Its own target answers `200 OK`; that of httpx-socks answers `200` without a reason.
      {
        file: 'tests/http_app2.py',
        from: 'asyncio.run(serve(app, config))',
        to: '__import__("uvicorn").run(app, host=host, port=port, ssl_certfile=certfile, ssl_keyfile=keyfile)',
      },
    ],
    command: (place) => pytest(place, 'tests/test_connector.py'),
    floor: 24,
    servedAtLeast: 20,
    known: [{ tests: /test_chain_proxy/, reason: REFUSES_ITSELF }],
  },
  {
    ...socksSuite,
    name: 'httpx-socks',
    source: httpxSocks,
    command: (place) => pytest(place, 'tests'),
    floor: 83,
    servedAtLeast: 70,
  },
];
