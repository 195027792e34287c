/**
 * A noria that reaches everything through one front proxy: the service, HTTP members and SOCKS5 members. While the
 * front proxy is down, clients get its failure, no member is blamed and nothing is connected directly. Afterwards
 * everything works as before.
 */
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { Server as ProxyChainServer } from 'proxy-chain';
import { expect, onTestFinished, test } from 'vitest';
import { printConfig } from '../../src/config/print.ts';
import { curl } from '../support/curl.ts';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, sourceLine, startNoria, testConfig, untilReady } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';

const PASSWORD = 'p@ss:word/1';
const MEMBERS = 4;

/** A front proxy with a login on a fixed port. */
async function openFrontProxy() {
  const port = await freePort();
  /** `host:port` of each server to which it was asked to connect. */
  const asked: string[] = [];
  const start = async () => {
    const server = new ProxyChainServer({
      host: '127.0.0.1',
      port,
      prepareRequestFunction: ({ username, password, hostname, port: serverPort }) => {
        asked.push(`${hostname}:${serverPort}`);
        return { requestAuthentication: username !== 'corp' || password !== PASSWORD };
      },
    });
    await server.listen();
    return server;
  };
  let server = await start();
  onTestFinished(() => server.close(true));
  return {
    url: `http://corp:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}`,
    asked,
    stop: () => server.close(true),
    restart: async () => {
      server = await start();
    },
  };
}

test.skipIf(!hasCommand('curl'))(
  'front proxy: carries calls and members, and its failure costs no member',
  async () => {
    const front = await openFrontProxy();
    const sandbox = await openTestSandbox({
      members: MEMBERS * 2,
      lifetimeMs: 600_000,
      instances: [{ product: 'short-pure' }, { product: 'shared' }],
    });
    const size = `size: ${MEMBERS}, params: { count: ${MEMBERS}`;
    const options = {
      sources: [
        sourceLine(sandbox, 'pure', 'short-pure', `interval: 200ms, ${size} }`),
        sourceLine(sandbox, 'shared', 'shared', `interval: 1s, ${size}, pro: 2 }`),
      ],
      more: `service: { via: "${front.url}" }\ndial: { via: "${front.url}" }`,
    };
    const noria = await startNoria(options);
    const harmed: string[] = [];
    noria.bus.on('member.quarantined', ({ fault }) => harmed.push(fault));
    noria.bus.on('member.left', ({ reason }) => harmed.push(reason));
    await untilReady(noria, MEMBERS * 2);
    const ask = (...args: string[]) =>
      curl('-x', `http://${noria.proxy}`, ...args, `${sandbox.targetUrl}/ip`);
    const askAll = async () => {
      const answers: string[] = [];
      for (let time = 0; time < MEMBERS * 2; time += 1) answers.push((await ask('-p')).out.trim());
      return answers;
    };
    const before = await askAll();
    for (const exit of before) expect(exit).toMatch(/^127(\.\d+){3}$/);
    expect(new Set(before).size).toBeGreaterThan(1);
    const servers = new Set(front.asked);
    const used = sandbox.members().filter((member) => member.accepted > 0);
    for (const { host, port } of used) expect(servers).toContain(`${host}:${port}`);
    expect(servers).toContain(new URL(sandbox.instance('short-pure').baseUrl).host);

    await front.stop();
    const accepted = () => sandbox.members().reduce((sum, member) => sum + member.accepted, 0);
    const acceptedBefore = accepted();
    for (let time = 0; time < 3; time += 1) {
      const { out } = await ask('-i');
      expect(out).toMatch(/^HTTP\/1\.1 502 [\s\S]*X-Noria-Error: front-proxy-failed/);
      expect(out).toMatch(
        /Could not connect to the front proxy \(ECONNREFUSED\); check that the front proxy runs/,
      );
    }
    expect(accepted(), 'connections that bypassed the front proxy').toBe(acceptedBefore);

    await front.restart();
    for (const exit of await askAll()) expect(exit).toMatch(/^127(\.\d+){3}$/);
    expect(harmed).toEqual([]);
    expect(sandbox.strangers()).toEqual([]);
    const shown = [
      ...noria.lines,
      JSON.stringify(noria.control.status()),
      printConfig(testConfig(options)),
    ].join();
    expect(shown).toContain('http://corp:[secret]@127.0.0.1:');
    for (const secret of [PASSWORD, encodeURIComponent(PASSWORD)]) expect(shown).not.toContain(secret);
  },
);

test('front proxy: two norias that are front proxies of each other refuse after one round', async () => {
  const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
  const [one, other] = [await freePort(), await freePort()];
  const start = (port: number, via: number) =>
    startNoria({
      sources: [sourceLine(sandbox, 'city', 'short-classic')],
      listeners: `listeners: [{ address: "127.0.0.1:${port}", denyTargets: [] }]`,
      more: `dial: { via: "http://127.0.0.1:${via}", hedgeAfter: off, warm: off }`,
    });
  const norias = [await start(one, other), await start(other, one)];
  for (const noria of norias) await untilReady(noria, 1);
  let opened = 0;
  const harmed: string[] = [];
  for (const { bus } of norias) {
    bus.on('connection.opened', () => {
      opened += 1;
    });
    bus.on('member.quarantined', ({ fault }) => harmed.push(fault));
  }
  const answer = await fetchThrough(one);
  expect(answer).toMatch(/^HTTP\/1\.1 502 [\s\S]*X-Noria-Error: proxy-loop[\s\S]*error=proxy_loop_detected/);
  await until('the workers have reported their connections', () => opened >= 3);
  expect(opened, 'connections to both norias').toBe(3);
  expect(harmed).toEqual([]);
});

/** The answer to CONNECT through the proxy on this port. */
async function fetchThrough(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write('CONNECT target.example:443 HTTP/1.1\r\nHost: target.example:443\r\n\r\n');
  return text(socket);
}
