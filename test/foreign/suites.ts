/** The suites, the change that puts noria into each, and the floor of each. README.md has the suites that cannot be fetched. */
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Edit, KnownFailure, Place, Sdist, Suite } from './suite.ts';

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

/** These edits are necessary because members of the sandbox resolve only names under `.example`. */
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

const TESTCASE = 'dummyserver/testcase.py';

const urllib3 = {
  source: { registry: 'pypi', package: 'urllib3', version: '2.8.0' },
  // The suite's settings turn warnings of unused plugins into errors. `CI` gives its requests 500 ms instead of 100.
  environment: () => ({ CI: 'true', PYTHONPATH: 'src', PYTEST_ADDOPTS: '-p no:asyncio -p no:trio' }),
  report: 'junit',
} as const;

/** Tests that would end the whole run, because they wait without limit or panic. */
const GO_SKIPPED = [
  'TestConnectRequest', // sends a CONNECT that is meant for the target
  // These tests wait until the client sees that the target closed a connection. Behind noria, the client's connection is to noria
  // and stays open.
  'TestServerConnState',
  'TestServerSetKeepAlivesEnabledClosesConns',
  'TestTransportRemovesDeadIdleConnections',
  'TestTransportResponseHeaderTimeout', // cancels the request after 2 ms, but waits until the target has received the request
  // These use a network inside the test.
  'TestNewClientServerTest',
  'TestTransportIdleConnRacesRequest',
  'TestTransportRemovesConnsAfterIdle',
  'TestTransportRemovesConnsAfterBroken',
  'TestConnClosedBeforeRequestIsWritten',
];

const GO_KNOWN: readonly KnownFailure[] = [
  {
    tests:
      /KeepAlive|RemoteAddr|SetsBodyNil|HijackAfter|IdleConns|IdleCache|IdleTimeout|Reus|Eats|PersistConnLeak|HeadChunked|ClosingUnexpectedly/,
    reason: 'compares the connections of client and target: behind noria each request may have another one',
  },
  {
    tests: /EventTrace|TraceGotConn|IDNA/,
    reason: 'expects that the client itself resolves the name and connects to the target',
  },
  {
    tests:
      /BadResponse|WriteDeadline|PanicRecovery|ServerShutdown|HeaderLength|SignInContentLength|Treat101|ServerProtocols/,
    reason: 'expects a broken connection or an answer that no proxy may pass on: noria answers 502',
  },
  {
    tests: /StarRequest|SlashRedirect|CONNECTBidi|HostMismatch|CopyHost/,
    reason:
      'sends a request that means something else to a proxy: CONNECT, `*`, or a Host that is not in the URL',
  },
  {
    tests: /Expect100Continue[25]00|Ignore1xx|ConnectionCloseOnRequest|InvalidHeader/,
    reason: 'compares fields that belong to one connection, or a spelling that noria corrects',
  },
  { tests: /ReadHeaderTimeoutIsCleared/, reason: 'runs on a network inside the test' },
  {
    tests: /PrefersResponseOverWriteError/,
    reason: 'the target resets after 1 ms: the member can lose its answer',
  },
];

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
    // The archive has the tests without the files that they import. The archive of httpx-socks has these files.
    support: [{ source: httpxSocks, folder: 'tests' }],
    edits: [
      ...SOCKS_EDITS,
      // The tests of aiohttp-socks expect the answer `200 OK`, but the target in the files of httpx-socks answers `200` without a
      // reason phrase.
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
  {
    ...urllib3,
    name: 'urllib3-proxy',
    edits: [
      {
        file: TESTCASE,
        from: 'run_hypercorn_in_thread(cls.proxy_host, None, ProxyApp())',
        to: 'contextlib.nullcontext(7790)',
      },
      {
        file: TESTCASE,
        from: 'run_hypercorn_in_thread(\n                    cls.proxy_host, cls.https_certs, ProxyApp(upstream_ca_certs)\n                )',
        to: 'contextlib.nullcontext(7791)',
      },
    ],
    listeners: ({ folder }) => {
      const certs = `${folder}/dummyserver/certs`;
      return [
        'address: "127.0.0.1:7790"',
        'address: "[::1]:7790"',
        `address: "127.0.0.1:7791", tls: { cert: "${certs}/server.crt", key: "${certs}/server.key" }`,
        `address: "[::1]:7791", tls: { cert: "${certs}/server.crt", key: "${certs}/server.key" }`,
      ];
    },
    // The excluded class starts another proxy for each of its tests, with another certificate.
    command: (place) =>
      pytest(
        place,
        'test/with_dummyserver/test_proxy_poolmanager.py',
        '-k',
        'not TestHTTPSProxyVerification',
      ),
    floor: 32,
    servedAtLeast: 50,
    known: [
      {
        tests: /forwarding_for_https/,
        reason:
          'asks a proxy to speak TLS to the target (an https:// URL in absolute form): noria answers 501',
      },
    ],
  },
  {
    ...urllib3,
    name: 'urllib3-socks',
    copies: [['python/through_noria.py', 'through_noria.py']],
    listeners: () => ['address: "127.0.0.1:7792"'],
    command: (place) =>
      pytest(
        place,
        '-p',
        'through_noria',
        '--timeout=15',
        ...['connection', 'connectionpool', 'poolmanager', 'https', 'socketlevel', 'chunked_transfer'].map(
          (part) => `test/with_dummyserver/test_${part}.py`,
        ),
      ),
    floor: 480,
    servedAtLeast: 480,
    known: [
      {
        tests: /ConnectionPoolTimeouts|test_connection_read_timeout|test_recovery_when_server_closes/,
        reason:
          'allows 1 ms for the connection, or expects that a close arrives at once: there are two hops more',
      },
      { tests: /test_source_address/, reason: 'the target sees the address of the member' },
      {
        tests: /client_intermediate|client_key_password|test_alpn|http2_probe/,
        reason:
          'fails without noria, too: the target of the suite does not work with this version of hypercorn',
      },
      {
        tests: /test_ssl_load_default_certs_when_empty/,
        reason: 'replaces the TLS socket by a mock that cannot send',
      },
      { tests: /test_connection_refused/, reason: 'the server of the test before it has not ended' },
      {
        tests: /test_preserve_chunked/,
        reason: 'finds the end of a request by the port of the client, which is that of the member',
      },
    ],
  },
  {
    name: 'ws',
    source: {
      registry: 'debian',
      package: 'node-ws',
      release: 'trixie',
      version: '8.18.1',
      archive: 'node-ws_8.18.1+~cs14.18.2.orig.tar.gz',
    },
    copies: [['node/through-noria.cjs', 'through-noria.cjs']],
    listeners: () => ['address: "127.0.0.1:7794"'],
    command: ({ modules, results }) => [
      process.execPath,
      `${modules}/mocha/bin/mocha.js`,
      ...['--require', './through-noria.cjs', '--timeout', '20000', '--exit'],
      ...['--reporter', 'xunit', '--reporter-option', `output=${results}`],
      ...['create-websocket-stream', 'websocket-server', 'websocket'].map((part) => `test/${part}.test.js`),
    ],
    environment: () => ({
      NORIA_PROXY: 'http://127.0.0.1:7794',
      NORIA_AGENT: fileURLToPath(import.meta.resolve('https-proxy-agent')),
    }),
    report: 'junit',
    floor: 240,
    servedAtLeast: 150,
    known: [
      {
        tests: /Upgrade header field value cannot be read/,
        reason: 'fails without noria, too: Node answers 431',
      },
      {
        tests: /net\.Socket|error listener while connecting|SNI extension|default ports from host header/,
        reason: 'looks into the socket or the agent that ws would make itself',
      },
    ],
  },
  ...(['http', 'socks5h'] as const).map((scheme) => goSuite(scheme)),
];

function goSuite(scheme: 'http' | 'socks5h'): Suite {
  const dialsItself = ['Dial', 'DialTLS', 'DialTLSContext'].map((field) => `t.${field} != nil`).join(' || ');
  return {
    name: `go-${scheme}`,
    source: { registry: 'go', package: 'net/http' },
    edits: [
      {
        file: 'transport.go',
        from: '\tif t.Proxy != nil {\n',
        to: `\tif t.Proxy == nil && !(${dialsItself}) {
\t\tcm.proxyURL = &url.URL{Scheme: "${scheme}", Host: "127.0.0.1:7793"}
\t} else if t.Proxy != nil {\n`,
      },
      // Some tests compare all fields of an answer, and do not expect noria's own fields.
      {
        file: 'transport.go',
        from: 'resp, err = ReadResponse(pc.br, rc.treq.Request)\n',
        to: `resp, err = ReadResponse(pc.br, rc.treq.Request)
\t\tif err == nil {
\t\t\tfor name := range resp.Header {
\t\t\t\tif strings.HasPrefix(name, "X-Noria-") {
\t\t\t\t\tdelete(resp.Header, name)
\t\t\t\t}
\t\t\t}
\t\t}\n`,
      },
    ],
    listeners: () => ['address: "127.0.0.1:7793"'],
    command: ({ folder, results }) => [
      'sh',
      '-c',
      `go test -json -timeout 4m -overlay ${folder}/overlay.json -skip '^(${GO_SKIPPED.join('|')})$' net/http > ${results}`,
    ],
    report: 'go',
    // Some tests depend on the speed of the machine, so the floor is a few below the 1,023 and 1,060 tests that passed
    // first.
    floor: scheme === 'http' ? 1_015 : 1_055,
    servedAtLeast: scheme === 'http' ? 2_500 : 1_800,
    known: GO_KNOWN,
  };
}
